//! Self-contained HTML reports with plots.
