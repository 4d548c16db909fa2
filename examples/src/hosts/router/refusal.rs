//! Answers that the router gives itself, in the form that clients of OpenAI's interface read.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Characters of what is said about malformed JSON at most: it may repeat what was sent.
const MAX_SAID: usize = 200;

/// Why a request is not sent on, or came back without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The body did not come as it should; with the status that says how.
    #[error("the body is {}", what_body(*.0))]
    Body(StatusCode),
    /// The bodies of other requests leave no room for this one.
    #[error("too much is under way")]
    NoRoom,
    /// The body is no JSON, or has a field of another type.
    #[error("no JSON object of the right form: {0}")]
    NoJson(String),
    /// `prompt` is absent.
    #[error("you must provide a prompt")]
    NoPrompt,
    /// A prompt in words.
    #[error("a prompt is an array of token ids here, since the router has no tokenizer")]
    Text,
    /// A prompt of something else.
    #[error("a prompt is an array of token ids, from 0 to 4294967295, or an array of such arrays")]
    NoTokens,
    /// A prompt without tokens, or no prompts.
    #[error("a prompt has at least one token")]
    EmptyPrompt,
    /// More prompts than one request may have.
    #[error("too many prompts in one request")]
    TooManyPrompts,
    /// `model` is absent although there are several pools; with their names.
    #[error("you must provide a model: {0}")]
    NoModel(String),
    /// `model` names nothing here; with what could be named.
    #[error("the model does not exist here; there is {0}")]
    UnknownModel(String),
    /// A path that means nothing.
    #[error("no such page; there are POST /v1/completions and POST /v1/route")]
    NoPage,
    /// Another method than the path takes.
    #[error("only POST is taken here")]
    Method,
    /// No data center may be used.
    #[error("no data center serves this pool now")]
    NobodyServes,
    /// Each endpoint said that it has too much to do.
    #[error("all endpoints have too much to do")]
    AllBusy,
    /// No endpoint began an answer.
    #[error("no endpoint answers")]
    NobodyAnswers,
}

fn what_body(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "too large",
        StatusCode::REQUEST_TIMEOUT => "too slow",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "compressed, which is not understood here",
        _ => "incomplete or malformed",
    }
}

impl Refusal {
    /// A body that did not come, with the status that says why.
    pub(super) fn body(status: StatusCode) -> Self {
        match status {
            StatusCode::SERVICE_UNAVAILABLE => Self::NoRoom,
            status => Self::Body(status),
        }
    }

    /// Malformed JSON.
    pub(super) fn json(error: serde_json::Error) -> Self {
        Self::NoJson(error.to_string().chars().take(MAX_SAID).collect())
    }

    /// Whether the client is to blame.
    pub fn is_bad_request(&self) -> bool {
        self.status().is_client_error()
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Body(status) => *status,
            Self::UnknownModel(_) | Self::NoPage => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRoom | Self::NobodyServes | Self::AllBusy => StatusCode::SERVICE_UNAVAILABLE,
            Self::NobodyAnswers => StatusCode::BAD_GATEWAY,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The field that is wrong, and a word for programs.
    fn details(&self) -> (Option<&'static str>, &'static str) {
        match self {
            Self::Body(_) => (None, "bad_body"),
            Self::NoRoom => (None, "no_room"),
            Self::NoJson(_) => (None, "bad_json"),
            Self::NoPrompt => (Some("prompt"), "missing_prompt"),
            Self::Text => (Some("prompt"), "text_prompt_unsupported"),
            Self::NoTokens => (Some("prompt"), "bad_prompt"),
            Self::EmptyPrompt => (Some("prompt"), "empty_prompt"),
            Self::TooManyPrompts => (Some("prompt"), "too_many_prompts"),
            Self::NoModel(_) => (Some("model"), "missing_model"),
            Self::UnknownModel(_) => (Some("model"), "model_not_found"),
            Self::NoPage => (None, "unknown_url"),
            Self::Method => (None, "method_not_allowed"),
            Self::NobodyServes => (None, "no_data_center"),
            Self::AllBusy => (None, "all_busy"),
            Self::NobodyAnswers => (None, "no_endpoint"),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let kind = if self.is_bad_request() { "invalid_request_error" } else { "server_error" };
        let (param, code) = self.details();
        let error =
            json!({ "message": self.to_string(), "type": kind, "param": param, "code": code });
        let mut response = (self.status(), Json(json!({ "error": error }))).into_response();
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
