package saltyaml

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

func TestErrorsNameFileAndLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a: 1\nb: 2\na: 3\n", "x.sls:3: found conflicting ID 'a'"},
		{"a: 1\nb: !foo x\n", `x.sls:2: could not determine a constructor for the tag "!foo"`},
		{"a: 1\n---\nb: 2\n", "x.sls:2: expected a single document"},
		{"a: &x 1\nb: 2\nc: &x 3\n", `x.sls:3: duplicate anchor "x", first on line 1`},
		{"a:\n  - b\n  - {{ c }}\n", "x.sls:3: found unacceptable key"},
		{"a: b: c\n", "x.sls:1: mapping values are not allowed"},
		{"a: 1\nb: \x01\n", "x.sls:2: unacceptable character #x0001"},
		{"a: 1\nb: \xff\n", "x.sls:2: text is not valid UTF-8"},
		{"a: {<<: 1}\n", "x.sls:1: expected a mapping or list of mappings for merging"},
		{"a: &a [*a]\n", "x.sls:1: an alias contains itself"},
		{"a: &a\n  <<: *a\n  b: 1\n", "x.sls:1: a merge key contains itself"},
		{".nan: 1\n", "x.sls:1: not-a-number cannot be a key"},
		{"a: " + strings.Repeat("9", 5000) + "\n", "x.sls:1: integer of 5000 digits"},
	} {
		_, err := Decode([]byte(c.in), "x.sls")
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%.40q: error %v is no *Error", c.in, err)
		} else if !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.40q: error %q, want %q...", c.in, err, c.want)
		}
	}
}

func TestLimits(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		p, n := string(rune('a'+i-1))+"0", string(rune('a'+i))+"0"
		bomb.WriteString(n + ": &" + n + " [" + strings.Repeat("*"+p+", ", 9) + "*" + p + "]\n")
	}

	var merge strings.Builder
	merge.WriteString("a0: &a0 {x: 1}\n")
	for i := 1; i < 26; i++ {
		p, n := string(rune('a'+i-1))+"0", string(rune('a'+i))+"0"
		merge.WriteString(n + ": &" + n + " {<<: [*" + p + ", *" + p + ", *" + p + "]}\n")
	}

	for name, in := range map[string]string{
		"size":       "a: " + strings.Repeat("x", 9<<20),
		"flow depth": strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"very deep":  strings.Repeat("[", 1<<20),
		"map depth":  strings.Repeat("{a: ", 100) + strings.Repeat("}", 100),
		"list depth": strings.Repeat("- ", 5000),
		"many":       strings.Repeat("-\n", 2<<20),
		"many flow":  "[" + strings.Repeat("a,", 2<<20) + "]",
		"aliases":    bomb.String(),
	} {
		if _, err := Decode([]byte(in), name); err == nil {
			t.Errorf("%s: accepted", name)
		} else if name != "very deep" && name != "list depth" && !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v is not ErrLimit", name, err)
		}
	}

	// Overlapping merges are duplicate keys; the test only checks that decoding ends.
	if _, err := Decode([]byte(merge.String()), "merges"); err == nil {
		t.Error("merges: accepted")
	}
}

func TestAliasesAreSeparateValues(t *testing.T) {
	v, err := Decode([]byte("a: &x {k: 1}\nb: *x\n"), "x")
	if err != nil {
		t.Fatal(err)
	}
	m := v.(*value.Map)
	m.Map("a").Set("k", int64(2))
	if got, _ := m.Map("b").Int("k"); got != 1 {
		t.Errorf("changing one changed the other: %d", got)
	}
}

func TestEncodeRefuses(t *testing.T) {
	if _, err := Encode(struct{}{}); err == nil {
		t.Error("struct accepted")
	}
	loop := []any{nil}
	loop[0] = loop
	if _, err := Encode(loop); err == nil {
		t.Error("loop accepted")
	}
}

func FuzzDecode(f *testing.F) {
	g := readGolden(f)
	for _, c := range g.Load {
		f.Add([]byte(c.In))
	}

	l := Limits{Bytes: 1 << 16, Depth: 64, Nodes: 1 << 14}
	f.Fuzz(func(t *testing.T, b []byte) {
		// No input this small may take seconds; the fuzzer itself has no time limit.
		watch := time.AfterFunc(5*time.Second,
			func() { panic(fmt.Sprintf("still busy with %d bytes: %.300q", len(b), b)) })
		defer watch.Stop()

		v, err := DecodeWithin(b, "fuzz", l)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T is no *Error", err)
			}
			return
		}

		for _, s := range []Style{{KeepKeys: true}, {KeepKeys: true, Flow: true}} {
			text, err := EncodeStyle(v, s)
			if err != nil {
				t.Fatalf("cannot write what was read: %v", err)
			}

			again, err := Decode(text, "again")
			if err != nil {
				t.Fatalf("cannot read what was written: %v\n%q", err, text)
			}

			if a, b := asJSON(t, v), asJSON(t, again); a != b && !hasNaN(v) {
				t.Fatalf("changed by a round trip through %q:\n%s\n%s", text, a, b)
			}
		}
	})
}

func hasNaN(v any) bool {
	switch v := v.(type) {
	case float64:
		return math.IsNaN(v)
	case []any:
		for _, x := range v {
			if hasNaN(x) {
				return true
			}
		}
	case *value.Map:
		for _, x := range v.All() {
			if hasNaN(x) {
				return true
			}
		}
	}

	return false
}

func BenchmarkDecode(b *testing.B) {
	var s strings.Builder
	for i := range 2000 {
		s.WriteString("state_" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) +
			strings.Repeat("y", i/26) + ":\n  file.managed:\n    - mode: 0644\n    - user: root\n")
	}
	text := []byte(s.String())
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Decode(text, "x"); err != nil {
			b.Fatal(err)
		}
	}
}

// The library counts some lines from zero; the errors of this package count them from one, as
// editors do.
func TestLinesOfFaults(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb:\n  c: [1, 2\nd: 3\n": "f:3: did not find expected ',' or ']'",
		"a: {b: 1\nc: 2\n":             "f:2: did not find expected ',' or '}'",
		"a: 1\nb: c: d\n":              "f:2: mapping values are not allowed in this context",
		"]\n":                          "f:1: did not find expected node content",
		"a: 1\n\n]: 2\n":               "f:3: mapping values are not allowed in this context",
		"a:\n  - 1\n  b: 2\n":          "f:2: did not find expected '-' indicator",
	} {
		if _, err := Decode([]byte(text), "f"); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
