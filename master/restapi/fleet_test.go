package restapi

import (
	"encoding/csv"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"saltern/master/value"
)

func TestRowsOfAViewAsCSV(t *testing.T) {
	view := fleetView{"runs", []string{"minion", "failed", "changes", "test"}}
	text := asCSV(view, value.NewMap("runs", []any{
		value.NewMap("minion", "web1", "failed", int64(2), "changes", "-old, \"x\"\n+new", "test", true, "more", "left out"),
		value.NewMap("minion", "=cmd|' /C calc'!A0", "changes", nil),
		"no map",
	}))
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"minion", "failed", "changes", "test"},
		{"web1", "2", "'-old, \"x\"\n+new", "true"},
		{"'=cmd|' /C calc'!A0", "", "", ""},
		{"", "", "", ""},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
}

func TestMinionsOfAViewAsCSV(t *testing.T) {
	view := fleetView{"minions", []string{"minion", "result"}}
	text := asCSV(view, value.NewMap("minions", value.NewMap("web1", value.NewMap("result", "ok"))))
	if want := "minion,result\r\nweb1,ok\r\n"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// TestHeadersOfATableThatIsCut: whoever reads a table knows whether it has all rows.
func TestHeadersOfATableThatIsCut(t *testing.T) {
	for _, tt := range []struct {
		name                string
		found               *value.Map
		next, more, partial string
	}{
		{"all", value.NewMap("next", "", "more", false), "", "", ""},
		{"page", value.NewMap("next", "web1"), "web1", "true", ""},
		{"cut", value.NewMap("more", true), "", "true", ""},
		{"to come", value.NewMap("partial", true), "", "", "true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			setPaging(h, tt.found)
			if h.Get("X-Next") != tt.next || h.Get("X-More") != tt.more || h.Get("X-Partial") != tt.partial {
				t.Errorf("%v", h)
			}
		})
	}
}

// FuzzCell: no spreadsheet carries out what a minion sent.
func FuzzCell(f *testing.F) {
	f.Add("=1+1")
	f.Fuzz(func(t *testing.T, s string) {
		if got := cellOf(s); got != "" && slices.Contains([]byte("=+-@\t\r"), got[0]) {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func TestWhoWantsCSV(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                 false,
		"*/*":                              false,
		"text/csv":                         true,
		"application/json, text/csv;q=0.5": false,
		"text/csv, application/json;q=0.5": true,
	} {
		r := httptest.NewRequest("GET", "/fleet/runs", nil)
		r.Header.Set("Accept", accept)
		if got := wantsCSV(r); got != want {
			t.Errorf("%q: %t", accept, got)
		}
	}
}
