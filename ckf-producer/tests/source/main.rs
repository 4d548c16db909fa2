//! Stage 1: source streams, fronts and readiness.

mod engine;
mod fronts;
mod known;
mod latest;
mod model;
mod patience;
mod pool;
mod questions;
mod reports;
mod support;
mod translator;
mod translator_model;
