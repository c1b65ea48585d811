"""A table as Markdown, for the scripts that print the tables of a folder of results."""


def print_table(head, rows):
    """Cells are text."""
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()
