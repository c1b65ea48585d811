"""The documents whose figures are checked against raw data."""
import build_claims
import chunk_claims
import cpu_claims
import emulated_claims
import fetch_claims
import gpu_claims
import gpu_h200_claims
import grammar_claims
import parts_claims
import plan_claims
import rotation_claims
import tokenizer_claims
from claims import Document

README = Document("README.md", [
    *parts_claims.README, *cpu_claims.README, *rotation_claims.README, *emulated_claims.README, *gpu_h200_claims.README,
    *tokenizer_claims.README,
], ("## Measured",))
CHANGELOG = Document("CHANGELOG.md", tokenizer_claims.CHANGELOG)
PLAN = Document("docs/plan.md", [*plan_claims.PLAN, *parts_claims.PLAN])
DEFAULT_POLICY = Document("docs/adr/0011-goodput-by-default.md", [*plan_claims.ADR, *rotation_claims.ADR])
POLICIES = Document("docs/policies.md", rotation_claims.POLICIES_PAGE)
ROTATION = Document("docs/rotation.md", parts_claims.ROTATION)
PRODUCTS = Document("docs/adr/0006-cpu-products.md", parts_claims.ADR_PRODUCTS)
INT8 = Document("docs/adr/0007-eight-bit-weights.md", parts_claims.ADR_INT8)

DOCUMENTS = [README, gpu_claims.GPU, gpu_claims.ACCOUNT, gpu_claims.PRODUCTS, gpu_claims.LAUNCHING, CHANGELOG, PLAN,
             DEFAULT_POLICY, POLICIES, ROTATION, PRODUCTS, INT8, build_claims.ADR, chunk_claims.ADR,
             fetch_claims.PAGE, grammar_claims.README]
