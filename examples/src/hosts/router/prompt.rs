//! What routing needs of a completion request. All the rest is for the engine, which gets the body as
//! it came.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::refusal::Refusal;

/// Prompts of one request at most.
const MAX_PROMPTS: usize = 128;

/// A completion request.
#[derive(Debug, PartialEq)]
pub struct Asked {
    /// At least one prompt, none of them empty: token ids. All go to one engine.
    pub prompts: Vec<Vec<u32>>,
    /// The name in `model`.
    pub model: Option<String>,
}

/// Reads a body.
///
/// # Errors
/// No JSON object with one prompt or several, all of token ids.
pub fn read(body: &[u8]) -> Result<Asked, Refusal> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        prompt: Option<&'a RawValue>,
        model: Option<String>,
    }
    let body = str::from_utf8(body).map_err(|_| Refusal::NoJson("not UTF-8".to_owned()))?;
    // The derived code would take an array for an object.
    if !body.trim_ascii_start().starts_with('{') {
        return Err(Refusal::NoJson("not an object".to_owned()));
    }
    let Body { prompt, model } = serde_json::from_str(body).map_err(Refusal::json)?;
    let prompt = prompt.map(RawValue::get).filter(|text| *text != "null");
    let prompt = prompt.ok_or(Refusal::NoPrompt)?;
    // Before anything is allocated for them.
    if prompt.matches('[').count() > MAX_PROMPTS + 1 {
        return Err(Refusal::TooManyPrompts);
    }
    let one = serde_json::from_str(prompt).map(|one| vec![one]);
    let prompts: Vec<Vec<u32>> = match one.or_else(|_| serde_json::from_str(prompt)) {
        Ok(prompts) => prompts,
        Err(_) if prompt.contains('"') => return Err(Refusal::Text),
        Err(_) => return Err(Refusal::NoTokens),
    };
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err(Refusal::EmptyPrompt);
    }
    Ok(Asked { prompts, model })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_prompt_or_several() {
        for (body, prompts, model) in [
            (r#"{"prompt":[1,2]}"#, vec![vec![1, 2]], None),
            (r#" {"n":2,"prompt" : [ [1] ],"model":"m"}"#, vec![vec![1]], Some("m")),
            (r#"{"prompt":[[1,2],[4294967295]],"model":null}"#, vec![vec![1, 2], vec![!0]], None),
        ] {
            let asked = read(body.as_bytes()).unwrap();
            assert_eq!((asked.prompts, asked.model.as_deref()), (prompts, model), "{body}");
        }
        let many = |n| format!(r#"{{"prompt":[[1]{}]}}"#, ",[1]".repeat(n - 1));
        assert_eq!(read(many(MAX_PROMPTS).as_bytes()).unwrap().prompts.len(), MAX_PROMPTS);
        assert_eq!(read(many(MAX_PROMPTS + 1).as_bytes()), Err(Refusal::TooManyPrompts));
    }

    #[test]
    fn nonsense_is_refused() {
        for (body, refusal) in [
            (r#"{}"#, Refusal::NoPrompt),
            (r#"{"prompt":null}"#, Refusal::NoPrompt),
            (r#"{"prompt":""}"#, Refusal::Text),
            (r#"{"prompt":"Once"}"#, Refusal::Text),
            (r#"{"prompt":["a","b"]}"#, Refusal::Text),
            (r#"{"prompt":[1,"b"]}"#, Refusal::Text),
            (r#"{"prompt":[]}"#, Refusal::EmptyPrompt),
            (r#"{"prompt":[[]]}"#, Refusal::EmptyPrompt),
            (r#"{"prompt":[[1],[]]}"#, Refusal::EmptyPrompt),
            (r#"{"prompt":1}"#, Refusal::NoTokens),
            (r#"{"prompt":true}"#, Refusal::NoTokens),
            (r#"{"prompt":{}}"#, Refusal::NoTokens),
            (r#"{"prompt":[-1]}"#, Refusal::NoTokens),
            (r#"{"prompt":[1.5]}"#, Refusal::NoTokens),
            (r#"{"prompt":[4294967296]}"#, Refusal::NoTokens),
            (r#"{"prompt":[null]}"#, Refusal::NoTokens),
            (r#"{"prompt":[1,[2]]}"#, Refusal::NoTokens),
            (r#"{"prompt":[[1],2]}"#, Refusal::NoTokens),
            (r#"{"prompt":[[[1]]]}"#, Refusal::NoTokens),
        ] {
            assert_eq!(read(body.as_bytes()), Err(refusal), "{body}");
        }
        let deep = format!(r#"{{"prompt":{}1{}}}"#, "[".repeat(90_000), "]".repeat(90_000));
        assert_eq!(read(deep.as_bytes()), Err(Refusal::TooManyPrompts));
        let huge = format!(r#"{{"model":{{"{}":1}},"prompt":[1]}}"#, "x".repeat(90_000));
        for body in [
            "",
            "{",
            "null",
            "[]",
            r#"[[1],"m"]"#,
            r#""text""#,
            r#"{"prompt":[1,]}"#,
            r#"{"prompt":[1]}x"#,
            r#"{"prompt":[1],"prompt":[2]}"#,
            r#"{"prompt":[1],"model":5}"#,
            r#"{"prompt":[01]}"#,
            r#"{"prompt":[NaN]}"#,
            "\u{FEFF}{\"prompt\":[1]}",
            &huge,
        ] {
            match read(body.as_bytes()) {
                Err(Refusal::NoJson(why)) => assert!(why.len() <= 200, "{why}"),
                other => panic!("{:.50}: {other:?}", body),
            }
        }
        assert!(matches!(read(b"{\"prompt\":[1],\"x\":\"\xFF\"}"), Err(Refusal::NoJson(_))));
    }
}
