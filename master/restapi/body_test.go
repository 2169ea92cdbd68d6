package restapi

import (
	"testing"

	"saltern/master/value"
)

func TestDecodeForm(t *testing.T) {
	for text, want := range map[string]string{
		"a=1&b=x+y&b=%C3%A9&c=":          "{'a': '1', 'b': ['x y', 'é']}",
		"arg=0644&kwarg=%7Ba%3A+1%7D":    "{'arg': [644], 'kwarg': {'a': 1}}",
		"arg=one=1&arg=%5B1%2C+2%5D":     "{'arg': ['one=1', [1, 2]]}",
		"&&=x&%zz=1":                     "{'': 'x', '%zz': '1'}",
		"client=local&kwarg=a&kwarg=b+c": "{'client': 'local', 'kwarg': ['a', 'b c']}",
	} {
		if v, err := decodeForm([]byte(text)); err != nil || value.Repr(v) != want {
			t.Errorf("%s: %s, %v; want %s", text, value.Repr(v), err, want)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]string{
		"": typeJSON, "*/*": typeJSON, "application/x-yaml": typeYAML, "APPLICATION/JSON": typeJSON, "application/*": typeJSON,
		"application/x-yaml;q=0.1, application/json;q=0.9": typeJSON, "text/html, application/x-yaml": typeYAML,
		"text/html": "", "application/json;q=0": "", ";;,,": "",
	} {
		if got, err := negotiate(accept); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", accept, got, err)
		}
	}
}

func FuzzBodies(f *testing.F) {
	for _, s := range []string{`[{"client": "local"}]`, "a=1&arg=x", "- a: 1\n", "[[[", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for kind, k := range bodyKinds() {
			v, err := k.decode(b)
			if err == nil && len(asJSON(v)) == 0 {
				t.Errorf("%s: %q cannot be written", kind, b)
			}
		}
	})
}
