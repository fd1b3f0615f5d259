//! What must not compile: the type of a permit is what keeps our own code honest.

#[test]
fn p1_a_permit_cannot_be_made_cloned_or_spent_twice() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/fail/*.rs");
}
