//! The way in.

use maud::{Markup, html};

use super::layout::{bare, outside, spoken};

/// The page to log in. A script takes the token out of the address and sends the form by itself.
pub fn page(codes: bool, wrong: Option<&str>) -> Markup {
    outside(
        "Log in",
        &html! {
            h1 { "The console of Bailiwick" }
            @if let Some(wrong) = wrong {
                p.told.wrong role="alert" { strong { "Not logged in: " } (spoken(wrong)) }
            }
            section aria-labelledby="by-link" {
                h2 #by-link { "With a link" }
                p { "Type " code { "bailiwick console link" } " in a terminal outside of any task, and open what it prints. A link is good for one login, for two minutes." }
                form #link-form method="post" action="/login" {
                    label for="token" { "Or put the link here" }
                    input #token type="password" name="token" required maxlength="200" autocomplete="off" spellcheck="false";
                    button.main type="submit" { "Log in" }
                }
            }
            @if codes {
                section aria-labelledby="by-code" {
                    h2 #by-code { "With a code of your own" }
                    form method="post" action="/login/code" {
                        label for="name" { "Your name" }
                        input #name type="text" name="name" required maxlength="64" autocomplete="username" spellcheck="false";
                        label for="code" { "The six digits that your authenticator shows" }
                        input #code type="text" name="code" required maxlength="16" inputmode="numeric" autocomplete="one-time-code";
                        button.main type="submit" { "Log in" }
                    }
                }
            }
        },
    )
}

/// The session is over, or never was.
pub fn ended() -> Markup {
    bare(
        "You are not logged in",
        "this session has ended, or is another browser's: `bailiwick console link` makes a new link",
    )
}
