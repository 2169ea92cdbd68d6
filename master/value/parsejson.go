package value

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// Limits of a decoded document.
const (
	maxJSONDepth  = 64
	maxJSONValues = 200_000
)

var errJSON = errors.New("it is no JSON, or has too much in it")

// ParseJSON parses one document from an untrusted sender, with at most 64 levels and 200,000
// values. Maps keep their order. If a name occurs twice, its last value counts.
func ParseJSON(b []byte) (any, error) {
	d := jsonReader{Decoder: json.NewDecoder(bytes.NewReader(b))}
	d.UseNumber()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errJSON
	}
	return v, nil
}

type jsonReader struct {
	*json.Decoder
	values int
}

func (d *jsonReader) value(depth int) (any, error) {
	d.values++
	if d.values > maxJSONValues || depth > maxJSONDepth {
		return nil, errJSON
	}

	t, err := d.Token()
	if err != nil {
		return nil, err
	}

	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return d.list(depth)
		}
		return d.mapping(depth)
	case json.Number:
		return number(t.String())
	}

	return t, nil // nil, bool, string
}

func (d *jsonReader) list(depth int) (any, error) {
	l := []any{}
	for d.More() {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	_, err := d.Token()
	return l, err
}

func (d *jsonReader) mapping(depth int) (any, error) {
	m := NewMap()
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}

		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}

		m.Set(k, v)
	}

	_, err := d.Token()
	return m, err
}

// number returns an integer if s is written as an integer, otherwise a float. If Salt's wire format
// cannot carry the integer, number returns a job id as text (salt/utils/args.py condition_input)
// and an error for any other integer.
func number(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		return strconv.ParseFloat(s, 64)
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	if n, ok := new(big.Int).SetString(s, 10); ok && n.IsUint64() {
		return n.Uint64(), nil
	}
	if len(s) == 20 && s[0] == '2' {
		return s, nil // a job id remains a text
	}
	return nil, errJSON
}
