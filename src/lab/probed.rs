//! The row of a probe: constants of a card instead of times of a kernel.

use super::row::{self, Row, Run};
use crate::{
    bench::Status,
    probe::{Constant, Measured},
};
use serde_json::{Map, Value, json};

impl Row {
    /// The row of a probe: its `numbers` are the constants by name. `circumstances` are those of the run.
    pub fn of_probe(measured: &Measured, run: &Run, circumstances: &Value) -> Self {
        let Measured { probe, status, message, constants, card } = measured;
        let number = |constant: &Constant| {
            let mut number = row::object(&constant.summary);
            number.insert("unit".to_owned(), json!(constant.unit));
            (constant.name.clone(), Value::Object(number))
        };
        Self {
            format: row::FORMAT,
            bench: row::PROBE.to_owned(),
            case: (*probe).to_owned(),
            contender: "kgen".to_owned(),
            own: true,
            shape: Map::new(),
            dtype: None,
            layout: None,
            status: (*status).into(),
            message: message.clone(),
            numbers: (*status == Status::Ok).then(|| constants.iter().map(number).collect()),
            card: row::object(card),
            kernel: None,
            details: Map::new(),
            run: run.with(circumstances),
            foreign: None,
        }
    }
}
