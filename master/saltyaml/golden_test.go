package saltyaml

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"strconv"
	"testing"

	"saltern/master/value"
)

type goldenFile struct {
	Load []struct {
		In   string
		Out  json.RawMessage
		Err  string
		Line int
	}
	Dump []struct {
		In      json.RawMessage
		Block   *string
		Indent4 *string
		Flow    *string
	}
}

func readGolden(t testing.TB) goldenFile {
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g goldenFile
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// typed is the form in which golden.py writes a value.
func typed(v any) any {
	switch v := v.(type) {
	case nil:
		return []any{"n"}
	case bool:
		return []any{"b", v}
	case int64, uint64:
		return []any{"i", fmt.Sprint(v)}
	case *big.Int:
		return []any{"i", v.String()}
	case float64:
		if math.IsNaN(v) {
			return []any{"f", "nan"}
		}
		return []any{"f", strconv.FormatUint(math.Float64bits(v), 16)}
	case []byte:
		return []any{"y", base64.StdEncoding.EncodeToString(v)}
	case string:
		return []any{"s", v}
	case []any:
		l := []any{}
		for _, x := range v {
			l = append(l, typed(x))
		}
		return []any{"l", l}
	case *value.Map:
		l := []any{}
		for k, x := range v.All() {
			l = append(l, []any{typed(k), typed(x)})
		}
		return []any{"m", l}
	}

	panic(fmt.Sprintf("%T", v))
}

// untyped is the opposite; floats come as Python's float.hex.
func untyped(t testing.TB, v any) any {
	l := v.([]any)
	switch l[0] {
	case "n":
		return nil
	case "b", "s":
		return l[1]
	case "i":
		n, ok := new(big.Int).SetString(l[1].(string), 10)
		if !ok {
			t.Fatalf("integer %v", l[1])
		}

		if n.IsInt64() {
			return n.Int64()
		} else if n.IsUint64() {
			return n.Uint64()
		}

		return n
	case "f":
		f, err := strconv.ParseFloat(l[1].(string), 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	case "y":
		b, err := base64.StdEncoding.DecodeString(l[1].(string))
		if err != nil {
			t.Fatal(err)
		}
		return b
	case "l":
		out := []any{}
		for _, x := range l[1].([]any) {
			out = append(out, untyped(t, x))
		}
		return out
	case "m":
		out := &value.Map{}
		for _, x := range l[1].([]any) {
			kv := x.([]any)
			k := untyped(t, kv[0])
			if b, ok := k.([]byte); ok {
				k = string(b)
			}
			out.Set(k, untyped(t, kv[1]))
		}

		return out
	}

	t.Fatalf("type %v", l[0])
	return nil
}

func asJSON(t testing.TB, v any) string {
	b, err := json.Marshal(typed(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// different are inputs that we read otherwise than Salt, each for a reason.
var different = map[string]string{
	"a: !\n":       "the parser drops a lone non-specific tag: nil in place of empty text",
	"a: \"\\/\"\n": "the parser does not know the escape \\/ of JSON; refused loudly",
}

func TestGoldenEncode(t *testing.T) {
	for _, c := range readGolden(t).Dump {
		var raw any
		if err := json.Unmarshal(c.In, &raw); err != nil {
			t.Fatal(err)
		}

		v := untyped(t, raw)
		for _, s := range []struct {
			style Style
			want  *string
		}{{Style{}, c.Block}, {Style{Indent: 4}, c.Indent4}, {Style{Flow: true}, c.Flow}} {
			got, err := EncodeStyle(v, s.style)
			if err != nil {
				t.Errorf("%s: %v", asJSON(t, v), err)
			} else if s.want == nil || string(got) != *s.want {
				t.Errorf("%s %+v:\n got %q\nwant %q", asJSON(t, v), s.style, got, *s.want)
			}
		}
	}
}

func TestGoldenDecode(t *testing.T) {
	for _, c := range readGolden(t).Load {
		if different[c.In] != "" {
			continue
		}

		got, err := Decode([]byte(c.In), "x")
		if c.Err != "" {
			if err == nil {
				t.Errorf("%q: got %s, Salt refuses it with %s", c.In, asJSON(t, got), c.Err)
			}
			continue
		}

		if err != nil {
			t.Errorf("%q: %v, Salt reads %s", c.In, err, c.Out)
			continue
		}

		var raw any
		if err := json.Unmarshal(c.Out, &raw); err != nil {
			t.Fatal(err)
		}

		if g, w := asJSON(t, got), asJSON(t, untyped(t, raw)); g != w {
			t.Errorf("%q:\n got %s\nwant %s", c.In, g, w)
		}
	}
}
