package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Tree is a piece of appliance.yaml: maps, lists, texts, truth values and
// numbers. It comes through JSON as it was: whole numbers stay whole ones,
// where encoding/json alone makes 12345678 the number 1.2345678e+07.
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

// wholeNumbers replaces the numbers in a value.
func wholeNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
		n, _ := v.Float64() // the decoder has checked its form
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
