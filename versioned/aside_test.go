package versioned

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestBrokenContentIsSetAside: whatever becomes of the file itself, or of its last successor,
// the newest whole version is found again, and writing goes on from there.
func TestBrokenContentIsSetAside(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	garbage := func() []byte {
		b := make([]byte, random.IntN(40))
		for i := range b {
			b[i] = byte(random.IntN(256))
		}
		return append([]byte("x"), b...) // no number
	}
	for _, c := range []struct {
		name    string
		damage  func(f File, last []byte) error
		version uint64 // that is found again
	}{
		{"the file", func(f File, _ []byte) error { return os.WriteFile(f.Path, garbage(), 0o600) }, 5},
		{"an empty file", func(f File, _ []byte) error { return os.WriteFile(f.Path, nil, 0o600) }, 5},
		{"a successor", func(f File, last []byte) error { return os.WriteFile(f.successor(5, last), garbage(), 0o600) }, 5},
		{"both", func(f File, last []byte) error {
			return errors.Join(os.WriteFile(f.Path, garbage(), 0o600), os.WriteFile(f.successor(4, []byte("4")), garbage(), 0o600))
		}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := File{
				Path:    filepath.Join(t.TempDir(), "numbers"),
				Mode:    0o600,
				Limit:   1000,
				Version: func(b []byte) (uint64, error) { return strconv.ParseUint(string(b), 10, 64) },
			}
			for v := range uint64(5) {
				if err := f.Write(v, strconv.AppendUint(nil, v+1, 10)); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.damage(f, []byte("5")); err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.Read(); !errors.Is(err, ErrContent) {
				t.Fatalf("read: %v", err)
			}

			broken, err := f.SetAside()
			if err != nil || len(broken) == 0 {
				t.Fatalf("set aside: %v, %v", broken, err)
			}
			b, version, err := f.Read()
			if err != nil || version != c.version || !bytes.Equal(b, strconv.AppendUint(nil, c.version, 10)) {
				t.Errorf("then: %q, version %d, %v", b, version, err)
			}
			if err := f.Write(version, []byte("77")); err != nil {
				t.Errorf("write: %v", err)
			}
			for _, path := range broken {
				if _, err := os.Stat(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
