//! Schemas to judge, with values.
#![allow(clippy::too_many_lines)]

use serde_json::{Value, json};

/// A schema, values that it accepts, in its order, and values that it does not.
pub type Case = (Value, Vec<Value>, Vec<Value>);

/// What most schemas consist of.
pub fn schemas() -> Vec<Case> {
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "left": {"$ref": "#/$defs/node"},
                           "right": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["name"], "additionalProperties": false}}
    });
    vec![
        (
            json!(true),
            vec![json!(null), json!({"a": [1, "x", {"b": -0.5}]}), json!([[[]]])],
            vec![],
        ),
        (json!({"type": "string"}), vec![json!(""), json!("aé\u{1f600}\n\"\\")], vec![json!(1)]),
        (
            json!({"type": ["integer", "null"]}),
            vec![json!(0), json!(-17), json!(null)],
            vec![json!(1.5), json!("1")],
        ),
        (json!({"type": "number"}), vec![json!(0), json!(-1.25), json!(1e3)], vec![json!(null)]),
        (json!({"type": "boolean"}), vec![json!(true), json!(false)], vec![json!(0)]),
        (
            json!({"enum": ["a", "ab", 1, null, {"k": [1]}]}),
            vec![json!("a"), json!("ab"), json!(1), json!(null), json!({"k": [1]})],
            vec![json!("b"), json!("abc"), json!({})],
        ),
        (json!({"const": "x\"y"}), vec![json!("x\"y")], vec![json!("x")]),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"},
                "b": {"type": "string"},
                "c": {"type": "array", "items": {"type": "boolean"}}}, "required": ["b"],
                "additionalProperties": false}),
            vec![
                json!({"b": ""}),
                json!({"a": 1, "b": "x", "c": [true, false]}),
                json!({"b": "", "c": []}),
            ],
            vec![json!({}), json!({"a": 1}), json!({"b": 1}), json!({"b": "", "d": 1})],
        ),
        (
            json!({"type": "object", "properties": {"ab": {"type": "integer"},
                "é": {"type": "null"}}}),
            vec![json!({}), json!({"ab": 1}), json!({"a": "x", "abc": [], "z": {"ab": "y"}})],
            vec![json!({"ab": "x"}), json!({"é": 1})],
        ),
        (
            json!({"type": "object", "required": ["k"],
                "additionalProperties": {"type": "integer"}}),
            vec![json!({"k": 1}), json!({"k": 1, "l": 2})],
            vec![json!({}), json!({"k": "x"})],
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4}),
            vec![json!([1, 2]), json!([1, 2, 3, 4])],
            vec![json!([1]), json!([1, 2, 3, 4, 5])],
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "items": false, "minItems": 2}),
            vec![json!(["x", 1])],
            vec![json!(["x"]), json!([1, "x"]), json!(["x", 1, 2])],
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 4}),
            vec![json!("ab"), json!("éèàù"), json!("\"\"")],
            vec![json!("a"), json!("abcde")],
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+-\\d{2,3}$"}),
            vec![json!("ab-12"), json!("z-999")],
            vec![json!("ab"), json!("a-1234"), json!("A-12")],
        ),
        (
            json!({"type": "string", "pattern": "b\"+"}),
            vec![json!("ab\"c"), json!("b\"")],
            vec![json!("a\""), json!("b")],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            vec![json!("2024-02-28T23:59:59Z")],
            vec![json!("2024-02-31T00:00:00Z")],
        ),
        (
            json!({"type": "string", "format": "uuid"}),
            vec![json!("123e4567-e89b-12d3-a456-426614174000")],
            vec![json!("123")],
        ),
        (
            json!({"type": "integer", "minimum": -12, "maximum": 345}),
            vec![json!(-12), json!(-1), json!(0), json!(9), json!(10), json!(99), json!(345)],
            vec![json!(-13), json!(346), json!(1000)],
        ),
        (
            json!({"type": "integer", "exclusiveMinimum": 99, "maximum": 1234}),
            vec![json!(100), json!(999), json!(1234)],
            vec![json!(99), json!(1235)],
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            vec![json!(0), json!(123456789)],
            vec![json!(-1)],
        ),
        (
            json!({"type": "number", "minimum": -1, "exclusiveMaximum": 10}),
            vec![json!(-1), json!(-0.5), json!(0), json!(9.75)],
            vec![json!(10), json!(-1.5), json!(11)],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
            vec![json!(0.5), json!(1)],
            vec![json!(0), json!(1.5), json!(-0.25)],
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"const": "x"}, {"type": "integer"}]}),
            vec![json!("x"), json!("y"), json!(3)],
            vec![json!(null), json!(1.5)],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"},
                "b": {"type": "integer"}},
                "additionalProperties": false, "anyOf": [{"required": ["a"]},
                    {"required": ["b"]}]}),
            vec![json!({"a": 1}), json!({"b": 1}), json!({"a": 1, "b": 2})],
            vec![json!({})],
        ),
        (
            json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}},
                {"properties": {"b": {"type": "string"}}, "required": ["a"]}]}),
            vec![json!({"a": 1}), json!({"a": 1, "b": "x"})],
            vec![json!({}), json!({"a": 1, "b": 2})],
        ),
        (
            json!({"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
             "required": ["kind", "x"]},
            {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]}),
            vec![json!({"kind": "a", "x": 1}), json!({"kind": "b"})],
            vec![json!({"kind": "a"})],
        ),
        (
            tree,
            vec![json!({"name": "r"}), json!({"name": "r", "left": {"name": "l"}, "right": null})],
            vec![json!({"left": {"name": "l"}}), json!({"name": "r", "left": {}})],
        ),
        (
            json!({"$defs": {"id": {"type": "integer"}}, "type": "object", "properties": {
            "ids": {"type": "array", "items": {"$ref": "#/$defs/id", "minimum": 3}}}}),
            vec![json!({"ids": [3, 4]})],
            vec![json!({"ids": [2]}), json!({"ids": ["x"]})],
        ),
    ]
}

/// Keywords that need texts told apart.
pub fn schemas_of_texts() -> Vec<Case> {
    vec![
        (
            json!({"type": "string", "pattern": "^[a-zé]+$", "minLength": 2, "maxLength": 3}),
            vec![json!("ab"), json!("éé"), json!("abé")],
            vec![json!("a"), json!("abcd"), json!("AB"), json!("")],
        ),
        (
            json!({"type": "string", "pattern": "x", "maxLength": 4}),
            vec![json!("x"), json!("x\n\"\\"), json!("é\u{1f600}xx")],
            vec![json!("abcdx"), json!("abc"), json!("")],
        ),
        (
            json!({"type": "string", "pattern": "^(ab|cde)$", "minLength": 1, "maxLength": 9000}),
            vec![json!("ab"), json!("cde")],
            vec![json!("abc")],
        ),
        (
            json!({"type": "string", "format": "hostname", "pattern": "^[^.]*\\.ORG$",
                "maxLength": 9}),
            vec![json!("ab-c.ORG")],
            vec![json!("ab-c.org"), json!("abcdefg.ORG"), json!("a.b.ORG")],
        ),
        (
            json!({"type": "string", "pattern": "(^a$)|b(^c|d$)|e"}),
            vec![json!("a"), json!("xbd"), json!("xex")],
            vec![json!("ab"), json!("bc"), json!("bdx")],
        ),
        (
            json!({"type": "string", "pattern": "^(|a$|$b|(^c|d)+)$"}),
            vec![json!(""), json!("a"), json!("c"), json!("cd"), json!("dd")],
            vec![json!("b"), json!("dc"), json!("ab")],
        ),
        (json!({"type": "string", "format": "color"}), vec![json!("any\n")], vec![json!(1)]),
        (
            json!({"type": "integer", "multipleOf": 7}),
            vec![json!(0), json!(-14), json!(700), json!(999_999)],
            vec![json!(1), json!(-8), json!(705)],
        ),
        (
            json!({"type": "integer", "multipleOf": 25, "minimum": 50, "exclusiveMaximum": 150}),
            vec![json!(50), json!(75), json!(125)],
            vec![json!(25), json!(150), json!(60), json!(-50)],
        ),
        (
            json!({"type": "number", "multipleOf": 0.25, "minimum": -1.5}),
            vec![json!(0), json!(-1.5), json!(-0.25), json!(3.75), json!(2.5)],
            vec![json!(0.2), json!(-1.75), json!(1.125)],
        ),
        (
            json!({"type": "number", "multipleOf": 1}),
            vec![json!(0), json!(-17), json!(3)],
            vec![json!(0.5)],
        ),
        (
            json!({"type": "number", "minimum": 0.25, "maximum": 10.5}),
            vec![json!(0.25), json!(0.3), json!(1), json!(9.999_999), json!(10.5), json!(10.49)],
            vec![json!(0.249), json!(0), json!(10.51), json!(11), json!(-1)],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": -0.75, "exclusiveMaximum": -0.125}),
            vec![json!(-0.74), json!(-0.126), json!(-0.5)],
            vec![json!(-0.75), json!(-0.125), json!(0), json!(-1), json!(0.5)],
        ),
        (
            json!({"type": "integer", "minimum": 0.5, "maximum": 2.5}),
            vec![json!(1), json!(2)],
            vec![json!(0), json!(3)],
        ),
    ]
}

/// Keywords that combine schemas, or that say what a value must not be.
pub fn schemas_of_combinations() -> Vec<Case> {
    let mut cases = objects();
    cases.extend(opposites());
    cases.extend(conditions());
    cases.extend(lists());
    cases
}

fn objects() -> Vec<Case> {
    vec![
        (
            json!({"type": "object", "properties": {"ab": {"maximum": 9}},
                "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 2}},
                "additionalProperties": {"type": "null"}}),
            vec![
                json!({}),
                json!({"ab": 2}),
                json!({"ab": 9, "a": -1, "xb": 2.5, "x": null, "azb": 3}),
            ],
            vec![json!({"ab": 1}), json!({"a": 0.5}), json!({"azb": 1}), json!({"x": 1})],
        ),
        (
            json!({"type": "object", "required": ["k1"], "additionalProperties": false,
                "patternProperties": {"^k\\d$": {"type": "boolean"}}}),
            vec![json!({"k1": true}), json!({"k1": true, "k2": false})],
            vec![json!({}), json!({"k1": 1}), json!({"k1": true, "l": true})],
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3},
                "properties": {"abc": {"type": "integer"}, "ABC": {"type": "integer"}}}),
            vec![json!({}), json!({"abc": 1, "z": "x"})],
            vec![json!({"ABC": 1}), json!({"abcd": 1}), json!({"": 1}), json!({"abc": "x"})],
        ),
        (
            json!({"type": "object", "propertyNames": {"enum": ["x", "y"]}}),
            vec![json!({}), json!({"y": 1, "x": 2})],
            vec![json!({"z": 1}), json!({"x": 1, "xy": 1})],
        ),
        (json!({"type": "object", "minProperties": 1}), vec![json!({"a": 1})], vec![json!({})]),
        (
            json!({"type": "object", "maxProperties": 1}),
            vec![json!({}), json!({"a": 1})],
            vec![json!({"a": 1, "b": 1})],
        ),
        (
            json!({"type": "object", "minProperties": 2, "maxProperties": 3,
                "properties": {"a": true, "b": true, "c": true, "d": true}, "required": ["c"],
                "additionalProperties": false}),
            vec![json!({"a": 1, "c": 2}), json!({"a": 1, "b": 2, "c": 3}), json!({"c": 1, "d": 2})],
            vec![json!({"c": 1}), json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2, "c": 3, "d": 4})],
        ),
        (
            json!({"type": "object", "minProperties": 2, "properties": {"a": true, "b": true}}),
            vec![json!({"a": 1, "b": 2}), json!({"a": 1, "x": 2}), json!({"b": 1, "x": 2, "y": 3})],
            vec![json!({}), json!({"a": 1}), json!({"x": 1})],
        ),
        (json!({"type": "object", "maxProperties": 0}), vec![json!({})], vec![json!({"a": 1})]),
        (
            json!({"allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}, "c": true},
                 "additionalProperties": false},
                {"properties": {"a": {"minimum": 3}, "b": true}}]}),
            vec![json!({}), json!({"a": 3, "c": 1})],
            vec![json!({"a": 2}), json!({"b": 1}), json!({"d": 1})],
        ),
    ]
}

fn opposites() -> Vec<Case> {
    vec![
        (
            json!({"type": "string", "not": {"enum": ["ab", "b\n"]}}),
            vec![json!("a"), json!("abc"), json!("b"), json!("")],
            vec![json!("ab"), json!("b\n")],
        ),
        (
            json!({"type": "string", "not": {"pattern": "^x|y$"}, "maxLength": 3}),
            vec![json!(""), json!("ax"), json!("yx")],
            vec![json!("xa"), json!("ay"), json!("abcd")],
        ),
        (
            json!({"type": ["string", "integer", "null"], "not": {"type": ["integer", "boolean"]}}),
            vec![json!("a"), json!(null)],
            vec![json!(1)],
        ),
        (
            json!({"type": "integer", "not": {"minimum": 3, "maximum": 5}}),
            vec![json!(2), json!(6)],
            vec![json!(3), json!(5)],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": true},
                "not": {"required": ["a", "b"]}}),
            vec![json!({}), json!({"a": 1}), json!({"b": 1})],
            vec![json!({"a": 1, "b": 1})],
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]}),
            vec![json!(1)],
            vec![json!(2), json!(1.5)],
        ),
        (
            json!({"type": "object", "properties": {"r": {"type": "number"},
                    "w": {"type": "number"}, "h": {"type": "number"}},
                "oneOf": [{"required": ["r"]}, {"required": ["w", "h"]}]}),
            vec![json!({"r": 1}), json!({"w": 1, "h": 2}), json!({"r": 1, "h": 2})],
            vec![json!({}), json!({"r": 1, "w": 1, "h": 1}), json!({"w": 1})],
        ),
        (
            json!({"type": "object", "oneOf": [
                {"properties": {"next": {"type": "string"}}, "additionalProperties": false},
                {"properties": {"previous": {"type": "string"}}, "additionalProperties": false}]}),
            vec![json!({"next": "a"}), json!({"previous": "a"})],
            vec![json!({}), json!({"next": "a", "previous": "b"}), json!({"x": 1})],
        ),
        (
            json!({"oneOf": [{"type": "string", "pattern": "^[a-f]{2}$"}, {"type": "string"}]}),
            vec![json!("abc"), json!("g")],
            vec![json!("ab"), json!(1)],
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "not": {"minItems": 2}}),
            vec![json!([]), json!([1])],
            vec![json!([1, 2])],
        ),
    ]
}

fn conditions() -> Vec<Case> {
    vec![
        (
            json!({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": true},
                "required": ["kind"],
                "if": {"properties": {"kind": {"const": "a"}}},
                "then": {"required": ["x"]},
                "else": {"properties": {"x": {"type": "null"}}}}),
            vec![
                json!({"kind": "a", "x": 1}),
                json!({"kind": "b"}),
                json!({"kind": "b", "x": null}),
            ],
            vec![json!({"kind": "a"}), json!({"kind": "b", "x": 1})],
        ),
        (
            json!({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}}),
            vec![json!(3), json!(20)],
            vec![json!(11)],
        ),
        (
            json!({"type": "object", "properties": {"a": true, "b": true, "c": true},
                "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["a"]}}}),
            vec![json!({}), json!({"b": 1}), json!({"a": 1, "b": 1, "c": 1})],
            vec![json!({"a": 1}), json!({"c": 1}), json!({"b": 1, "c": 1})],
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object", "properties": {"a": true, "b": true},
                "dependencies": {"a": ["b"], "b": {"properties": {"b": {"type": "null"}}}}}),
            vec![json!({}), json!({"b": null}), json!({"a": 1, "b": null})],
            vec![json!({"a": 1}), json!({"b": 1})],
        ),
    ]
}

fn lists() -> Vec<Case> {
    vec![
        (
            json!({"enum": [1, 2.0, "a", "bc", null, [1], {"k": 1}],
                "type": ["number", "string", "object"], "minimum": 2, "pattern": "^b",
                "required": ["l"]}),
            vec![json!("bc")],
            vec![json!(1), json!("a"), json!(null), json!([1]), json!({"k": 1})],
        ),
        (
            json!({"enum": [{"a": 1}, {"a": true}, [2], "x"], "not": {"properties": {"a": {"type": "boolean"}},
                "required": ["a"], "type": "object"}}),
            vec![json!({"a": 1}), json!([2]), json!("x")],
            vec![json!({"a": true})],
        ),
        (
            json!({"type": "string", "maxLength": 1000}),
            vec![json!(""), json!("é".repeat(999)), json!("a".repeat(1000))],
            vec![json!("a".repeat(1001))],
        ),
        (
            json!({"type": "string", "minLength": 300, "maxLength": 700}),
            vec![json!("a".repeat(300)), json!("\n".repeat(456)), json!("a".repeat(700))],
            vec![json!("a".repeat(299)), json!("a".repeat(701))],
        ),
        (
            json!({"type": "string", "pattern": "^-[a-z]{2,400}$"}),
            vec![json!("-aa"), json!(format!("-{}", "z".repeat(400)))],
            vec![json!("-a"), json!(format!("-{}", "z".repeat(401))), json!("-aA")],
        ),
        (
            json!({"type": "string", "pattern": "^x", "minLength": 90, "maxLength": 333}),
            vec![json!(format!("x{}", "é".repeat(89))), json!("x".repeat(333))],
            vec![json!("x".repeat(89)), json!("x".repeat(334)), json!("y".repeat(100))],
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 40, "maxItems": 300}),
            vec![json!(vec![1; 40]), json!(vec![22; 257]), json!(vec![1; 300])],
            vec![json!(vec![1; 39]), json!(vec![1; 301])],
        ),
    ]
}
