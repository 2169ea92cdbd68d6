package jobs

import (
	"fmt"
	"slices"

	"saltern/master/history/summary"
	"saltern/master/msgpack"
)

// maxJSON bounds the JSON of a return or a load, in bytes. Bytes that are not text take up to six times
// as much in JSON.
const maxJSON = 128 << 20

// JSON is a part of a job for a store that takes JSON.
type JSON struct {
	Text    []byte
	Adapted []string // kinds of what JSON, or PostgreSQL, cannot hold as it is (msgpack.AppendJSON)
}

// JSONOf returns a value as JSON.
func JSONOf(v any) (JSON, error) {
	packed, err := msgpack.Marshal(v, msgpack.Modern)
	if err != nil {
		return JSON{}, fmt.Errorf("pack for JSON: %w", err)
	}
	return PackedJSON(packed)
}

// PackedJSON returns a packed value as JSON.
func PackedJSON(packed []byte) (JSON, error) {
	text, adapted, err := msgpack.AppendJSON(nil, packed, msgpack.DefaultLimits, maxJSON)
	if err != nil {
		return JSON{}, fmt.Errorf("write as JSON: %w", err)
	}
	return JSON{Text: text, Adapted: adapted.Words()}, nil
}

// ReturnJSON is the content of return.p and out.p as JSON.
type ReturnJSON struct {
	Return JSON   // what the function returned
	Fields []byte // the other fields as members of an object, with a comma before each
	// Success is the field success; of several functions, whether each succeeded. It is false if the minion sent none,
	// as in Salt's returners.
	Success bool
}

// ReturnToJSON returns the contents of return.p and out.p as JSON. out may be nil: there is none.
func ReturnToJSON(content, out []byte) (ReturnJSON, error) {
	fields, err := msgpack.Fields(content, msgpack.DefaultLimits, 100)
	if err != nil {
		return ReturnJSON{}, fmt.Errorf("read return.p: %w", err)
	}
	if out != nil {
		fields = append(fields, msgpack.Field{Key: []byte("out"), Value: out})
	}

	r := ReturnJSON{Return: JSON{Text: []byte("null")}}
	var adapted []string
	for _, f := range fields {
		v, err := PackedJSON(f.Value)
		if err != nil {
			return ReturnJSON{}, err
		}
		adapted = append(adapted, v.Adapted...)

		switch string(f.Key) {
		case "return":
			r.Return.Text = v.Text
			continue
		case "success":
			r.Success = summary.Succeeded(f.Value)
		}
		key, err := JSONOf(string(f.Key))
		if err != nil {
			return ReturnJSON{}, err
		}
		r.Fields = append(append(append(append(r.Fields, ','), key.Text...), ':'), v.Text...)
	}
	slices.Sort(adapted)
	r.Return.Adapted = slices.Compact(adapted)
	return r, nil
}
