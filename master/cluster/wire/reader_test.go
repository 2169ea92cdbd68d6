package wire

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Only what has arrived of a large frame is charged, and all of it is given back.
func TestChargedAsItArrives(t *testing.T) {
	frame, err := AppendPacked(nil, "a/b", bytes.Repeat([]byte{0xc0}, 10*MaxStranger))
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		arrives, budget, most int
		want                  error
	}{
		{len(frame), 1 << 30, 10 * MaxStranger, nil},
		{MaxStranger, 1 << 30, MaxStranger, nil},
		{len(frame), 3 * MaxStranger, 3 * MaxStranger, errBudget},
	} {
		charged, most := 0, 0
		r := NewReader(bytes.NewReader(frame[:tt.arrives]), MaxFrame)
		r.SetCharge(func(n int) bool {
			if charged+n > tt.budget {
				return false
			}
			charged += n
			most = max(most, charged)
			return true
		})

		_, err := r.Next()
		if tt.want != nil && !errors.Is(err, tt.want) ||
			tt.arrives == len(frame) && tt.want == nil && err != nil || most > tt.most {
			t.Errorf("%+v: charged %d, %v", tt, most, err)
		}

		r.Release()
		if charged != 0 {
			t.Errorf("%+v: %d are not given back", tt, charged)
		}
	}
}

// FuzzReader reads frames from an unauthenticated sender; it starts from captures of Salt's
// masters.
func FuzzReader(f *testing.F) {
	files, _ := filepath.Glob("../../testdata/cluster/*.bin")
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil {
			f.Add(b)
		}
	}

	if len(files) == 0 {
		f.Fatal("no captures")
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		charged := 0
		r := NewReader(bytes.NewReader(b), MaxStranger)
		r.SetCharge(func(n int) bool { charged += n; return true })
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}

			kind, peer, rest := Classify(fr.Tag)
			if kind == KindRaft {
				_, _ = ParseRaft(rest, fr.Data)
			}

			_, _ = ParseAnnounce(peer, fr.Data)
			_, _ = Peek(fr.Data)
		}

		r.Release()
		if charged != 0 {
			t.Fatal(charged)
		}
	})
}
