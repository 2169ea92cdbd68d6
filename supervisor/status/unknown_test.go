package status

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fieldsOf are the names of a document's fields, with those of the objects in it, and which are lists.
func fieldsOf(prefix string, v any, out map[string]string) {
	for name, x := range v.(map[string]any) {
		out[prefix+name] = ""
		switch x := x.(type) {
		case map[string]any:
			fieldsOf(prefix+name+".", x, out)
		case []any:
			out[prefix+name] = "list"
		}
	}
}

// TestUnknownIsWhole: the document of a supervisor that does not answer has all that a healthy one
// always has: no null where there is a list, no 0 for a number that is not known (S4).
func TestUnknownIsWhole(t *testing.T) {
	form := func(d Document) (v any) {
		t.Helper()
		var b bytes.Buffer
		if err := WriteJSON(&b, d); err != nil {
			t.Fatal(err)
		}

		if err := json.Unmarshal(b.Bytes(), &v); err != nil {
			t.Fatal(err)
		}

		return v
	}

	now := time.Now()
	whole := form(Document{
		Nodes:    []Node{},
		Services: []Service{},
		Problems: []Problem{},
		Front:    Front{Addresses: []string{}},
	})

	unknown := form(Unknown(now, "nobody listens"))
	want, got := map[string]string{}, map[string]string{}
	fieldsOf("", whole, want)
	fieldsOf("", unknown, got)

	if !reflect.DeepEqual(want, got) {
		t.Errorf("fields %v\nnot %v", got, want)
	}

	m := unknown.(map[string]any)
	problems := m["problems"].([]any)
	if m["health"] != "unknown" || m["exit"] != 1.0 || m["started"] != nil || len(problems) != 1 {
		t.Errorf("%v", m)
	}

	if p := problems[0].(map[string]any); p["code"] != "SCA-005" || p["cause"] != "nobody listens" ||
		!strings.Contains(p["next"].(string), "systemctl") {
		t.Errorf("%v", p)
	}

	for _, field := range []string{"minions", "storage", "front", "clock"} {
		for name, x := range m[field].(map[string]any) {
			if _, number := x.(float64); number {
				t.Errorf("%s.%s is %v", field, name, x)
			}
		}
	}
}
