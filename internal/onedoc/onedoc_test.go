package onedoc

import (
	"errors"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestDecode(t *testing.T) {
	type options struct{ A, B int }
	for text, want := range map[string]struct {
		value    options
		more     bool
		fault    bool
		typeOnly bool
	}{
		"":                         {},
		"# nothing\n":              {},
		"---\n":                    {},
		"a: 1\n":                   {value: options{A: 1}},
		"---\na: 1\n...\n":         {value: options{A: 1}},
		"a: 1\n---\n":              {value: options{A: 1}, more: true},
		"a: 1\n---\nb: 2\n":        {value: options{A: 1}, more: true},
		"---\n---\na: 1\n":         {more: true},
		"a: 1\n--- {b: 2}\n":       {value: options{A: 1}, more: true},
		"a: 1\n---\n{":             {value: options{A: 1}, fault: true},
		"a: x\nb: 2\n":             {value: options{B: 2}, fault: true, typeOnly: true},
		"a: x\nb: 2\n---\na: 3\n":  {value: options{B: 2}, fault: true, typeOnly: true},
		"{":                        {fault: true},
		"a: 1\n...\n---\nb: 2\n":   {value: options{A: 1}, more: true},
		"a: 1\n...\n# a comment\n": {value: options{A: 1}},
	} {
		t.Run(text, func(t *testing.T) {
			var got options
			err := Decode([]byte(text), &got)
			if got != want.value || errors.Is(err, ErrMore) != want.more || (err != nil) != (want.more || want.fault) {
				t.Errorf("%+v, %v", got, err)
			}
			if wrong := new(yaml.TypeError); errors.As(err, &wrong) != want.typeOnly {
				t.Errorf("%v", err)
			}
		})
	}

	var known options
	if err := DecodeKnown([]byte("c: 1\n"), &known); err == nil {
		t.Error("an unknown field was accepted")
	}
}
