package event

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"saltern/master/value"
)

const wireDir = "../testdata/wire"

type vector struct {
	File   string `json:"file"`
	Decode string `json:"decode"`
	Expect struct {
		Tag  string         `json:"tag"`
		Data map[string]any `json:"data"`
	} `json:"expect"`
}

func vectors(t testing.TB, kind string) []vector {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wireDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}

	var index struct {
		Vectors []json.RawMessage `json:"vectors"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}

	var out []vector
	for _, raw := range index.Vectors {
		var head struct{ Decode string }
		json.Unmarshal(raw, &head)
		if head.Decode != kind {
			continue
		}

		var v vector
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}

		out = append(out, v)
	}

	if len(out) == 0 {
		t.Fatalf("no vectors of kind %s", kind)
	}

	return out
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wireDir, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// plain turns decoded values into what encoding/json gives.
func plain(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case *value.Map:
		out := map[string]any{}
		for k, x := range v.All() {
			out[k.(string)] = plain(x)
		}
		return out
	}

	return v
}

func TestGoldenFrames(t *testing.T) {
	for _, v := range vectors(t, "event") {
		t.Run(v.File, func(t *testing.T) {
			b := read(t, v.File)
			e, body, err := parseFrame(b)
			if err != nil {
				t.Fatal(err)
			}

			if e.Tag != v.Expect.Tag || !reflect.DeepEqual(plain(e.Data), any(v.Expect.Data)) {
				t.Errorf("got %q %v", e.Tag, plain(e.Data))
			}

			frame, _, err := packFrame(e.Tag, e.Data, 0)
			if err != nil || !bytes.Equal(frame[prefixLen:], b) {
				t.Errorf("packed again it differs: %x, %v", frame, err)
			}

			frame, _, err = frameBody(body)
			if err != nil || !bytes.Equal(frame[prefixLen:], b) {
				t.Errorf("framed again it differs: %x, %v", frame, err)
			}
		})
	}
}

func TestGoldenPullFrame(t *testing.T) {
	for _, v := range vectors(t, "event_pull") {
		b := read(t, v.File)
		e, _, err := parseFrame(b[prefixLen:])
		if err != nil {
			t.Fatal(err)
		}

		if e.Tag != v.Expect.Tag || !reflect.DeepEqual(plain(e.Data), any(v.Expect.Data)) {
			t.Errorf("got %q %v", e.Tag, plain(e.Data))
		}

		frame, _, err := packFrame(e.Tag, e.Data, 0)
		if err != nil || !bytes.Equal(frame, b) {
			t.Errorf("packed again it differs: %x, %v", frame, err)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, v := range vectors(f, "event") {
		f.Add(read(f, v.File))
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		e, body, err := parseFrame(b)
		if err != nil {
			return
		}

		if err := CheckTag(e.Tag); err != nil {
			t.Fatal(err)
		}

		frame, _, err := frameBody(body)
		if err != nil {
			t.Fatal(err)
		}

		again, _, err := parseFrame(frame[prefixLen:])
		if err != nil || again.Tag != e.Tag {
			t.Fatalf("framed again: %q, %v", again.Tag, err)
		}

		frame, body, err = packFrame(e.Tag, e.Data, 512)
		if err != nil {
			return // such as text that is too deep to pack
		}
		if len(body) > len(e.Tag)+2+overflow*512+4096 {
			t.Fatalf("trimmed to %d bytes", len(body))
		}

		if _, _, err = parseFrame(frame[prefixLen:]); err != nil {
			t.Fatal(err)
		}
	})
}
