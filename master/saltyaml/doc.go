// Package saltyaml reads and writes YAML exactly as Salt does.
//
// Salt loads YAML with PyYAML's YAML 1.1 rules and a few further rules (salt/utils/yamlloader.py):
// yes and on are booleans, 1:30 is ninety, 0644 is 644, 1e3 and dates are text, duplicate keys and
// second documents are errors. No Go library follows those rules, so this package uses
// go.yaml.in/yaml/v3 only as a parser and determines the value of each node itself.
//
// Decoded values have the types of package msgpack: nil, bool, int64, uint64, float64, string,
// []byte (!!binary), []any, *msgpack.Map, and *big.Int for integers beyond 64 bits. Sets become
// lists, as they do on Salt's wire. Aliases are expanded into separate values, so that a caller may
// change one without changing the other; the limits count the expanded values.
//
// The package holds no state; all functions may be called concurrently.
package saltyaml
