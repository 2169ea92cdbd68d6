package optionmap

import (
	"reflect"
	"strings"
	"testing"

	"saltern/master/value"
)

func TestReader(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value any
		line  string
		texts []string
		bool  bool
		// faults of Line, Texts and Bool: "" means none.
		faults [3]string
	}{
		{name: "none", value: nil},
		{name: "empty", value: "", faults: [3]string{"", "list of texts", "True or False"}},
		{name: "text", value: "a b", line: "a b", texts: []string{"a b"}, faults: [3]string{"", "", "True or False"}},
		{name: "long", value: strings.Repeat("s", 21), faults: [3]string{"one line", "list of texts", "True or False"}},
		{name: "lines", value: "a\nb", texts: []string{"a\nb"}, faults: [3]string{"one line", "", "True or False"}},
		{name: "list", value: []any{"a", "b"}, texts: []string{"a", "b"}, faults: [3]string{"one line", "", "True or False"}},
		{name: "mixed list", value: []any{"a", int64(1)}, faults: [3]string{"one line", "list of texts", "True or False"}},
		{name: "bool", value: true, bool: true, faults: [3]string{"one line", "list of texts", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			read := func(f func(*Reader) any, want any, fault string) {
				t.Helper()
				r := &Reader{Map: value.NewMap("key", tt.value)}
				if got := f(r); !reflect.DeepEqual(got, want) {
					t.Errorf("got %#v, want %#v", got, want)
				}

				err := r.Err()
				switch {
				case fault == "" && err != nil:
					t.Error(err)
				case fault != "" && (err == nil || !strings.HasPrefix(err.Error(), "key: ") || !strings.Contains(err.Error(), fault)):
					t.Errorf("%v, want %q", err, fault)
				case err != nil && strings.Contains(err.Error(), "sss"):
					t.Errorf("%v quotes the value", err)
				}
			}

			read(func(r *Reader) any { return r.Line("key", 20) }, tt.line, tt.faults[0])
			read(func(r *Reader) any { return r.Texts("key", 20) }, tt.texts, tt.faults[1])
			read(func(r *Reader) any { return r.Bool("key") }, tt.bool, tt.faults[2])
		})
	}

	r := &Reader{Map: value.NewMap()}
	r.Fail("a", "first")
	r.Fail("b", "second")
	if r.Err().Error() != "a: first" || len(r.Faults) != 2 {
		t.Errorf("%v", r.Faults)
	}
}
