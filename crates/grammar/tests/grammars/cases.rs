//! Grammars with recognisers that say the same.

use crate::judge::{Judge, a, c, m, n, o, p, r, s, t};

/// A grammar in several notations, its recogniser, and what its texts are made of.
pub struct Case {
    pub sources: &'static [&'static str],
    pub judge: Judge,
    pub alphabet: &'static str,
}

pub fn cases() -> Vec<Case> {
    let mut cases = plain_cases();
    cases.extend(cases_of_ends());
    cases.extend(recursive_cases());
    cases.extend(languages());
    cases
}

/// Repetition, classes, ranges, escapes.
fn plain_cases() -> Vec<Case> {
    vec![
        Case {
            sources: &[
                r#"
root ::= "- " item ("\n- " item)*
item ::= [^\n\r]+
"#,
                r#"
start: "- " item ("\n- " item)*
item: /[^\n\r]+/
"#,
            ],
            judge: Judge::new([
                ("root", s([t("- "), r("item"), m(s([t("\n- "), r("item")]))])),
                ("item", p(c("^\n\r"))),
            ]),
            alphabet: "- \na\u{e9}",
        },
        Case {
            sources: &[
                r#"
root ::= a{2} b{1,3} c{2,} d{0,2} # counts

a ::= "a" b ::= "b"
c ::= [c]
d ::= "\x64"
"#,
                r#"
start: A{2} B{1,3} C{2,} D{,2}
A: "a"
B: "b"
C: "c"
D: "\x64"
"#,
                r#"
start: A~2 B~1..3 C~2 C* D? D?
A: "a"
B: "b"
C: "c".."c"
D: /d/
"#,
            ],
            judge: Judge::new([(
                "root",
                s([
                    n(t("a"), 2, Some(2)),
                    n(t("b"), 1, Some(3)),
                    n(t("c"), 2, None),
                    n(t("d"), 0, Some(2)),
                ]),
            )]),
            alphabet: "abcd",
        },
        Case {
            sources: &[
                r#"root ::= [\u00e0-\u00ff\U0001F600]+ (. | "\\\"") [a\]^-]?"#,
                r#"start: /[\u{e0}-\u{ff}\U0001F600]+/ (/./s | "\\\"") /[a\]^-]/?"#,
            ],
            judge: Judge::new([(
                "root",
                s([
                    p(c("\u{e0}-\u{ff}\u{1F600}")),
                    a([c("^"), t("\\\"")]),
                    o(a([t("a"), t("]"), t("^"), t("-")])),
                ]),
            )]),
            alphabet: "\u{e0}\u{e9}\u{1F600}a]^-\\\"\n",
        },
        Case {
            sources: &[r#"
start: "Be"i _a ["," B] -> it
_a: ("x"
 | "y"
 ) "z"+
  | "w" // or
B: "1".."3"
"#],
            judge: Judge::new([(
                "root",
                s([
                    c("Bb"),
                    c("Ee"),
                    a([s([c("xy"), p(t("z"))]), t("w")]),
                    o(s([t(","), c("1-3")])),
                ]),
            )]),
            alphabet: "BbEexyzw,123",
        },
        Case {
            sources: &[r#"
start: WORD ("," NUMBER)*
%import common.WORD
%import common (SIGNED_INT, CNAME)
%import common.INT -> NUMBER
"#],
            judge: Judge::new([("root", s([p(c("a-zA-Z")), m(s([t(","), p(c("0-9"))]))]))]),
            alphabet: "aZ,19+",
        },
    ]
}

/// Where a rule may end and where it goes on is not told by its next byte alone.
fn cases_of_ends() -> Vec<Case> {
    vec![
        Case {
            sources: &[r#"
root ::= a "y"
a ::= "x" "y"?
"#],
            judge: Judge::new([("root", s([t("x"), o(t("y")), t("y")]))]),
            alphabet: "xy",
        },
        Case {
            sources: &[r#"
root ::= b "y" b
b ::= a "z"? | "q" a
a ::= "x" ("y" "x")*
"#],
            judge: Judge::new([
                ("root", s([r("b"), t("y"), r("b")])),
                ("b", a([s([r("a"), o(t("z"))]), s([t("q"), r("a")])])),
                ("a", s([t("x"), m(t("yx"))])),
            ]),
            alphabet: "xyzq",
        },
        Case {
            sources: &[
                r#"
root ::= word word "!" | word num
word ::= [a-z]+ num?
num ::= [0-9]{1,2}
"#,
                r#"
start: WORD WORD "!" | WORD NUM
WORD: /[a-z]+/ NUM?
NUM: /[0-9]{1,2}/
"#,
            ],
            judge: Judge::new([
                ("root", a([s([r("w"), r("w"), t("!")]), s([r("w"), r("n")])])),
                ("w", s([p(c("a-z")), o(r("n"))])),
                ("n", n(c("0-9"), 1, Some(2))),
            ]),
            alphabet: "az01!",
        },
        Case {
            // Each of these may be empty.
            sources: &[
                r#"
root ::= a b a c
a ::= "x"*
b ::= ("y" a)? | a
c ::= b b | ""
"#,
                r#"
start: a b a c
a: "x"*
b: ("y" a)? | a
c: b b |
"#,
            ],
            judge: Judge::new([
                ("root", s([r("a"), r("b"), r("a"), r("c")])),
                ("a", m(t("x"))),
                ("b", a([o(s([t("y"), r("a")])), r("a")])),
                ("c", o(s([r("b"), r("b")]))),
            ]),
            alphabet: "xy",
        },
        Case {
            // What is behind the outermost group must not be known to those within it.
            sources: &[r#"
root ::= g "\n" [a-z]*
g ::= [a-z] ws | "(" ws g g* ")" ws
ws ::= [ \n]*
"#],
            judge: Judge::new([
                ("root", s([r("g"), t("\n"), m(c("a-z"))])),
                (
                    "g",
                    a([
                        s([c("a-z"), r("ws")]),
                        s([t("("), r("ws"), r("g"), m(r("g")), t(")"), r("ws")]),
                    ]),
                ),
                ("ws", m(c(" \n"))),
            ]),
            alphabet: "a() \n",
        },
        Case {
            // Rules that only end with each other are regular.
            sources: &[r#"
root ::= (p "a")*
p ::= "x" q | "b" "a"?
q ::= "y" p | "y" "z" q
"#],
            judge: Judge::new([
                ("root", m(s([r("p"), t("a")]))),
                ("p", a([s([t("b"), o(t("a"))]), s([t("x"), r("q")])])),
                ("q", a([s([t("y"), r("p")]), s([t("yz"), r("q")])])),
            ]),
            alphabet: "abxyz",
        },
        Case {
            // What repeats behind a rule begins what the rule must then finish.
            sources: &[
                "root ::= \"z\" a \"x\"*\na ::= \"k\" (\"x\" \"y\")?",
                "root ::= \"z\" a w\na ::= \"k\" b?\nb ::= \"x\" \"y\"\nw ::= \"x\"*",
            ],
            judge: Judge::new([("root", s([t("zk"), o(t("xy")), m(t("x"))]))]),
            alphabet: "zkxy",
        },
    ]
}

/// At the left, in the middle, at the right.
fn recursive_cases() -> Vec<Case> {
    vec![
        Case {
            sources: &[
                r#"
root ::= list
list ::= list "," [0-9] | [0-9]
"#,
                r#"root ::= [0-9] | [0-9] "," root"#,
                r#"start: start "," start | /[0-9]/"#,
            ],
            judge: Judge::new([("root", s([c("0-9"), m(s([t(","), c("0-9")]))]))]),
            alphabet: "0,",
        },
        Case {
            sources: &[r#"root ::= "(" root ")" root | """#, r#"start: "(" start ")" start |"#],
            judge: Judge::new([("root", m(s([t("("), r("root"), t(")")])))]),
            alphabet: "()",
        },
        Case {
            // Left recursion through other rules.
            sources: &[r#"
root ::= a
a ::= b "x" | "p"
b ::= a "z" | "w" | b "q"
"#],
            judge: Judge::new([
                (
                    "root",
                    a([
                        s([t("p"), m(s([t("z"), r("q"), t("x")]))]),
                        s([t("w"), r("q"), t("x"), m(s([t("z"), r("q"), t("x")]))]),
                    ]),
                ),
                ("q", m(t("q"))),
            ]),
            alphabet: "pxzwq",
        },
        Case {
            sources: &[r#"
root ::= s
s ::= "a" s "b" | "a" s "c" | "d"
"#],
            judge: Judge::new([("root", a([t("d"), s([t("a"), r("root"), c("bc")])]))]),
            alphabet: "abcd",
        },
        Case {
            sources: &[r#"
start: ((A start)? B)? C
A: "a"
B: "b"
C: "c"
"#],
            judge: Judge::new([("root", s([o(s([o(s([t("a"), r("root")])), t("b")])), t("c")]))]),
            alphabet: "abc",
        },
    ]
}

/// Samples of languages, small and larger.
fn languages() -> Vec<Case> {
    let json = Judge::new([
        ("root", r("object")),
        ("word", a([t("true"), t("false"), t("null")])),
        ("pair", s([r("string"), t(":"), r("some")])),
        ("some", a([r("word"), r("number"), r("string"), r("array"), r("object")])),
        ("object", s([t("{"), o(s([r("pair"), m(s([t(","), r("pair")]))])), t("}")])),
        ("array", s([t("["), o(s([r("some"), m(s([t(","), r("some")]))])), t("]")])),
        (
            "string",
            s([
                t("\""),
                m(a([
                    c("^\"\\\n"),
                    s([t("\\"), a([c("nt\""), s([t("u"), n(c("0-9a-f"), 4, Some(4))])])]),
                ])),
                t("\""),
            ]),
        ),
        ("number", s([o(t("-")), p(c("0-9")), o(s([t("."), p(c("0-9"))]))])),
    ]);
    vec![
        Case {
            sources: &[
                r#"
root ::= (expr "=" sp term "\n")+
expr ::= term ([-+*/] sp term)*
term ::= name | num | "(" sp expr ")" sp
name ::= [a-z] [a-z0-9_]* sp
num ::= [0-9]+ sp
sp ::= [ \t\n]*
"#,
                r#"
root ::= (expr "=" sp term "\n")+
expr ::= expr "+" sp term | expr [-*/] sp term | term
term ::= name | num | "(" sp expr ")" sp
name ::= [a-z] [a-z0-9_]* sp
num ::= [0-9] num | [0-9] sp
sp ::= ([ \t\n] sp)?
"#,
            ],
            judge: Judge::new([
                ("root", p(s([r("e"), t("="), r("w"), r("t"), t("\n")]))),
                ("e", s([r("t"), m(s([c("-+*/"), r("w"), r("t")]))])),
                (
                    "t",
                    a([
                        s([c("a-z"), m(c("a-z0-9_")), r("w")]),
                        s([p(c("0-9")), r("w")]),
                        s([t("("), r("w"), r("e"), t(")"), r("w")]),
                    ]),
                ),
                ("w", m(c(" \t\n"))),
            ]),
            alphabet: "a0(+)= \n",
        },
        Case {
            sources: &[r#"
start: sum "=" NUM
?sum: product | sum "+" product -> add | sum "-" product
?product: atom | product "*" atom
?atom: NUM | "-" atom | "(" sum ")" | NAME
NAME: /[a-z]+/
NUM: /[0-9]+(\.[0-9]+)?/
%ignore /[ \t]+/
%ignore "\n"
"#],
            judge: Judge::new([
                ("root", s([r("w"), r("e"), t("="), r("w"), r("num")])),
                ("e", s([r("t"), m(s([c("-+*"), r("w"), r("t")]))])),
                (
                    "t",
                    a([
                        r("num"),
                        s([p(c("a-z")), r("w")]),
                        s([t("-"), r("w"), r("t")]),
                        s([t("("), r("w"), r("e"), t(")"), r("w")]),
                    ]),
                ),
                ("num", s([p(c("0-9")), o(s([t("."), p(c("0-9"))])), r("w")])),
                ("w", m(c(" \t\n"))),
            ]),
            alphabet: "a0.(+-)= \n",
        },
        Case {
            // White space on both sides of almost everything.
            sources: &[r#"
root ::= ws value ws
value ::= ws (object | array | "1") ws
object ::= "{" ws (pair (ws "," ws pair)*)? ws "}" ws
pair ::= ws "k" ws ":" ws value ws
array ::= "[" ws (value ws ("," ws value ws)*)? "]" ws
ws ::= [ \n]*
"#],
            judge: Judge::new([
                ("root", s([r("w"), r("value"), r("w")])),
                ("value", a([t("1"), r("array"), r("object")])),
                (
                    "object",
                    s([
                        t("{"),
                        r("w"),
                        o(s([r("pair"), m(s([t(","), r("w"), r("pair")]))])),
                        t("}"),
                    ]),
                ),
                ("pair", s([t("k"), r("w"), t(":"), r("w"), r("value"), r("w")])),
                (
                    "array",
                    s([
                        t("["),
                        r("w"),
                        o(s([r("item"), m(s([t(","), r("w"), r("item")]))])),
                        t("]"),
                    ]),
                ),
                ("item", s([r("value"), r("w")])),
                ("w", m(c(" \n"))),
            ]),
            alphabet: "{}[]k:,1 \n",
        },
        Case {
            sources: &[r#"
root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (pair ("," pair)*)? "}"
pair ::= string ":" value
array ::= "[" ( value ("," value)* )? "]"
string ::= "\"" ( [^"\\\n] | "\\" ([nt"] | "u" [0-9a-f]{4}) )* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
"#],
            judge: json,
            alphabet: "{}[]\":,\\ntrue0.u",
        },
        Case {
            sources: &[r#"
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | piece | castle) [+#]?
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle ::= "O-O" "-O"?
"#],
            judge: Judge::new([
                (
                    "root",
                    s([
                        t("1. "),
                        r("mv"),
                        t(" "),
                        r("mv"),
                        t("\n"),
                        p(s([c("1-9"), o(c("0-9")), t(". "), r("mv"), t(" "), r("mv"), t("\n")])),
                    ]),
                ),
                (
                    "mv",
                    s([
                        a([
                            s([o(s([c("a-h"), t("x")])), r("sq"), o(s([t("="), c("NBKQR")]))]),
                            s([c("NBKQR"), o(c("a-h")), o(c("1-8")), o(t("x")), r("sq")]),
                            s([t("O-O"), o(t("-O"))]),
                        ]),
                        o(c("+#")),
                    ]),
                ),
                ("sq", s([c("a-h"), c("1-8")])),
            ]),
            alphabet: "1. aBx8+O-=\n",
        },
        Case {
            sources: &[
                r#"
root ::= function*
function ::= type sp name "(" (type sp name ("," sp type sp name)*)? ")" block
type ::= "int" | "char"
sp ::= " "+
name ::= [a-z_] [a-z_0-9]*
block ::= "{" statement* "}"
statement ::= type sp name "=" expr ";" | name "=" expr ";" | name "(" args ")" ";"
  | "return" sp expr ";" | "while" "(" cond ")" block
  | "if" "(" cond ")" block ("else" block)?
cond ::= expr ("==" | "!=" | "<" | "<=" | ">" | ">=") expr
expr ::= term ([+-] term)*
term ::= factor ([*/] factor)*
factor ::= name | name "(" args ")" | [0-9]+ | "-" factor | "(" expr ")"
args ::= (expr ("," sp? expr)*)?
"#,
                // Lists of statements within a statement.
                r#"
root ::= function*
function ::= type sp name "(" (type sp name ("," sp type sp name)*)? ")" "{" statement* "}"
type ::= "int" | "char"
sp ::= " "+
name ::= [a-z_] [a-z_0-9]*
statement ::= type sp name "=" expr ";" | name "=" expr ";" | name "(" args ")" ";"
  | "return" sp expr ";" | "while" "(" cond ")" "{" statement* "}"
  | "if" "(" cond ")" "{" statement* "}" ("else" "{" statement* "}")?
cond ::= expr ("==" | "!=" | "<" | "<=" | ">" | ">=") expr
expr ::= term ([+-] term)*
term ::= factor ([*/] factor)*
factor ::= name | name "(" args ")" | [0-9]+ | "-" factor | "(" expr ")"
args ::= (expr ("," sp? expr)*)?
"#,
            ],
            judge: Judge::new([
                ("root", m(r("f"))),
                (
                    "f",
                    s([
                        r("decl"),
                        t("("),
                        o(s([r("decl"), m(s([t(","), p(t(" ")), r("decl")]))])),
                        t(")"),
                        r("block"),
                    ]),
                ),
                ("decl", s([a([t("int"), t("char")]), p(t(" ")), r("name")])),
                ("name", s([c("a-z_"), m(c("a-z_0-9"))])),
                ("block", s([t("{"), m(r("st")), t("}")])),
                (
                    "st",
                    a([
                        s([r("name"), t("="), r("e"), t(";")]),
                        s([r("decl"), t("="), r("e"), t(";")]),
                        s([r("name"), t("("), r("args"), t(");")]),
                        s([t("return"), p(t(" ")), r("e"), t(";")]),
                        s([t("while("), r("cond"), t(")"), r("block")]),
                        s([t("if("), r("cond"), t(")"), r("block"), o(s([t("else"), r("block")]))]),
                    ]),
                ),
                ("cond", s([r("e"), a([s([c("=!"), t("=")]), s([c("<>"), o(t("="))])]), r("e")])),
                ("e", s([r("t"), m(s([c("-+*/"), r("t")]))])),
                (
                    "t",
                    a([
                        r("name"),
                        p(c("0-9")),
                        s([r("name"), t("("), r("args"), t(")")]),
                        s([t("-"), r("t")]),
                        s([t("("), r("e"), t(")")]),
                    ]),
                ),
                ("args", o(s([r("e"), m(s([t(","), m(t(" ")), r("e")]))]))),
            ]),
            alphabet: "int char(){};=<+,0_",
        },
    ]
}
