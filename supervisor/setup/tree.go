package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Tree is a part of appliance.yaml: maps, lists, texts, truth values and numbers. Encoding it as
// JSON and decoding it does not change it: whole numbers stay whole, whereas encoding/json alone
// would turn 12345678 into 1.2345678e+07.
type Tree map[string]any

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Tree) UnmarshalJSON(text []byte) error {
	var raw map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&raw); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	for k, v := range raw {
		raw[k] = wholeNumbers(v)
	}
	*t = raw
	return nil
}

// wholeNumbers replaces each json.Number in a value by an int, or by a float64 if it is not whole.
func wholeNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
		n, _ := v.Float64() // the decoder has checked the syntax
		return n
	case map[string]any:
		for k, e := range v {
			v[k] = wholeNumbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = wholeNumbers(e)
		}
	}

	return v
}
