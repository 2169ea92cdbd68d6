package versioned

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// numbers returns a file of versions up to last, whose first claim is swept away as it is after
// some time.
func numbers(t *testing.T, last uint64) File {
	t.Helper()
	f := File{
		Path:    filepath.Join(t.TempDir(), "numbers"),
		Mode:    0o600,
		Limit:   1000,
		Version: func(b []byte) (uint64, error) { return strconv.ParseUint(string(b), 10, 64) },
	}

	for v := range last {
		if err := f.Write(v, strconv.AppendUint(nil, v+1, 10)); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Remove(f.successor(0, nil)); err != nil {
		t.Fatal(err)
	}

	return f
}

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
		{"a successor",
			func(f File, last []byte) error { return os.WriteFile(f.successor(5, last), garbage(), 0o600) },
			5},
		{"both", func(f File, last []byte) error {
			return errors.Join(os.WriteFile(f.Path, garbage(), 0o600),
				os.WriteFile(f.successor(4, []byte("4")), garbage(), 0o600))
		}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := numbers(t, 5)
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

// TestSettingAsideIsSeenByNobody: machines that look at a broken file, and set it aside, all at
// once, find it broken or the newest whole version, and never that there is none.
func TestSettingAsideIsSeenByNobody(t *testing.T) {
	const machines, times = 4, 20
	f := numbers(t, 5)
	for range times {
		if err := os.WriteFile(f.Path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}

		var wg sync.WaitGroup
		for range machines {
			wg.Go(func() {
				for {
					b, _, err := f.Read()
					if err == nil && string(b) == "5" {
						return
					}
					if !errors.Is(err, ErrContent) {
						t.Errorf("read: %q, %v", b, err)
						return
					}

					_, _ = f.SetAside() // another machine may have been faster
				}
			})
		}

		wg.Wait()
	}

	if n, _ := filepath.Glob(f.Path + ".broken-*"); len(n) < times {
		t.Errorf("%d broken files are kept, of %d", len(n), times)
	}
}

// TestNothingIsSetAsideBlindly: while a successor cannot be read, an older one could be taken for
// the newest.
func TestNothingIsSetAsideBlindly(t *testing.T) {
	f := numbers(t, 5)
	unread := f.successor(4, []byte("4"))
	err := errors.Join(os.Remove(unread), os.Mkdir(unread, 0o700), os.WriteFile(f.Path, []byte("x"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if aside, err := f.SetAside(); err == nil || len(aside) > 0 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	if b, err := os.ReadFile(f.Path); err != nil || string(b) != "x" {
		t.Errorf("then: %q, %v", b, err)
	}
}

// TestWholeGoesBack: what another machine has put in the place of a broken successor stays there.
func TestWholeGoesBack(t *testing.T) {
	f := numbers(t, 5)
	path := f.successor(4, []byte("4")) // it was broken when this machine read it
	if name, err := f.moveBroken(path); err != nil || name != "" {
		t.Errorf("moved: %q, %v", name, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "5" {
		t.Errorf("then: %q, %v", b, err)
	}
	if name, err := f.moveBroken(path + "0"); err != nil || name != "" {
		t.Errorf("what is gone: %q, %v", name, err)
	}
}
