package value

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// pythonValues holds the values of the expressions in testdata/python.json, in the file's order.
// For each expression the file contains the results of repr(), bool(),
// json.dumps(ensure_ascii=False) and the same with indent=4 of Python 3.11.
var pythonValues = []any{
	0.0, math.Copysign(0, -1), 1.0, 0.1, 1e15, 1e16, 123456789012345680.0, 1e-4, 1e-5, 2.5e-5, 1e100, 1.5e300, 5e-324, math.NaN(), math.Inf(1), math.Inf(-1),
	nil, true, false, int64(0), 7, int64(-3), uint64(math.MaxUint64), "", "a", "it's", `"`, `it's "`, "\n\t\\\x00\x7f\u0085\u2028\U0001f600\U000e0001",
	[]byte{}, []byte("ab\x00\xff'"), []any{}, []any{0}, []any{nil, "x", 1.0}, NewMap(), NewMap("a", []any{1, NewMap()}, 1, 2.5, nil, true), []any{[]any{}, NewMap()},
}

func TestAsPython(t *testing.T) {
	b, err := os.ReadFile("testdata/python.json")
	if err != nil {
		t.Fatal(err)
	}

	var rows []struct {
		Expr, Repr     string
		Truth          bool
		JSON, Indented *string
	}

	if err := json.Unmarshal(b, &rows); err != nil || len(rows) != len(pythonValues) {
		t.Fatalf("%d rows for %d values, %v", len(rows), len(pythonValues), err)
	}

	for i, r := range rows {
		v := pythonValues[i]
		if got := Repr(v); got != r.Repr {
			t.Errorf("repr(%s) is %s, not %s", r.Expr, r.Repr, got)
		}

		if got := Truth(v); got != r.Truth {
			t.Errorf("bool(%s) is %v", r.Expr, r.Truth)
		}

		for indent, want := range map[int]*string{-1: r.JSON, 4: r.Indented} {
			if want == nil {
				continue // bytes
			}
			if got, ok := (JSON{Indent: indent}).Text(v); !ok || got != *want {
				t.Errorf("json.dumps(%s) is %s, not %s", r.Expr, *want, got)
			}
		}
	}
}

func TestStrMax(t *testing.T) {
	long := make([]any, 1000)
	for i := range long {
		long[i] = strings.Repeat("x", 10)
	}
	if got := StrMax(long, 100); len(got) > 3000 || !strings.HasPrefix(got, "['xxx") {
		t.Errorf("%d bytes: %.40s", len(got), got)
	}
	pairs := NewMap()
	for i := range long {
		pairs.Set(fmt.Sprint(i), i)
	}
	for _, v := range []any{long, pairs, []any{pairs, long}, []any{long, pairs}} {
		if got := StrMax(v, 100); len(got) > 130 {
			t.Errorf("%d bytes: %s", len(got), got[100:])
		}
	}
	if text := strings.Repeat("x", 500); StrMax(text, 100) != text {
		t.Error("a text was cut")
	}
}

func TestJSONText(t *testing.T) {
	m := NewMap("\x9b31m", []byte("\xff"), "b", "\u009b", "a", int64(1))
	j := JSON{
		Indent: -1,
		Order:  func(m *Map) ([]any, bool) { return []any{"b", "\x9b31m", "a"}, true },
		Escape: func(r rune) bool { return r == 0x9b },
		Other:  func(any) string { return "other" },
	}

	if got, ok := j.Text(m); !ok || got != `{"b": "\u009b", "�31m": "other", "a": 1}` {
		t.Errorf("%v %s", ok, got)
	}

	j.Order = func(*Map) ([]any, bool) { return nil, false }
	if _, ok := j.Text(m); ok {
		t.Error("keys without an order have one")
	}
}
