package adopt

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/internal/room"
	"saltern/supervisor/backup"
	"saltern/supervisor/settings"
	"saltern/test/smalldisk"
)

// bomb is a gzipped archive of as many entries as next gives.
func bomb(t *testing.T, next func(i int) (tar.Header, io.Reader, bool)) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}

	w := tar.NewWriter(z)
	for i := 0; ; i++ {
		h, content, ok := next(i)
		if !ok {
			break
		}

		h.Mode = 0o644
		err := w.WriteHeader(&h)
		if err == nil && content != nil {
			_, err = io.Copy(w, content)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

type nothing struct{}

func (nothing) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// An archive that unpacks to more than there is room for ends with a sentence, and with room
// left for everybody else (finding 17 of the second audit).
func TestUnpackKeepsRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for name, next := range map[string]func(i int) (tar.Header, io.Reader, bool){
		"one large file": func(i int) (tar.Header, io.Reader, bool) {
			const size = 200 << 20
			return tar.Header{
				Name:     "etc/salt/big",
				Typeflag: tar.TypeReg,
				Size:     size,
			}, io.LimitReader(nothing{}, size), i == 0
		},
		"files of some size": func(i int) (tar.Header, io.Reader, bool) {
			size := random.Int64N(1 << 20)
			return tar.Header{
				Name:     fmt.Sprint("srv/salt/", i),
				Typeflag: tar.TypeReg,
				Size:     size,
			}, io.LimitReader(nothing{}, size), i < 300
		},
		"empty files": func(i int) (tar.Header, io.Reader, bool) {
			return tar.Header{Name: fmt.Sprint("srv/salt/", i), Typeflag: tar.TypeReg}, nil, i < 20_000
		},
		"folders": func(i int) (tar.Header, io.Reader, bool) {
			return tar.Header{Name: fmt.Sprint("srv/salt/", i, "/"), Typeflag: tar.TypeDir}, nil, i < 20_000
		},
		"deep names": func(i int) (tar.Header, io.Reader, bool) {
			return tar.Header{
				Name:     fmt.Sprint("srv/", i, strings.Repeat("/d", 20), "/f"),
				Typeflag: tar.TypeReg,
			}, nil, i < 2000
		},
		"links": func(i int) (tar.Header, io.Reader, bool) {
			return tar.Header{
				Name:     fmt.Sprint("srv/", i),
				Typeflag: tar.TypeSymlink,
				Linkname: strings.Repeat("x", 4000),
			}, nil, i < 6000
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := bomb(t, next)
			disk := smalldisk.Mount(t, 48, 5000)
			bytesBefore, filesBefore := smalldisk.Free(t, disk)
			s := &settings.Settings{
				DataDir: disk,
				Storage: settings.Storage{Kind: settings.VolumeStorage, Path: t.TempDir()},
			}

			dir, err := TreeDir(s)
			if err != nil {
				t.Fatal(err)
			}

			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}

			_, err = Unpack(t.Context(), bytes.NewReader(text), root, Limits{})
			if !errors.Is(err, room.ErrFull) || !strings.Contains(err.Error(), "are to stay free; make room") {
				t.Errorf("an archive of %d bytes: %v", len(text), err)
			}

			if err := root.Close(); err != nil {
				t.Fatal(err)
			}

			if free, files := smalldisk.Free(t, disk); free < 2<<20 || files < 200 {
				t.Errorf("%d bytes and %d files are left", free, files)
			}

			// What an import that was killed leaves goes with the next.
			backup.RemoveStages(treeParent(s), stagePrefix)
			if free, files := smalldisk.Free(t, disk); free != bytesBefore || files != filesBefore {
				t.Errorf("left behind: %d bytes, %d files", bytesBefore-free, filesBefore-files)
			}

			if entries, err := os.ReadDir(s.Storage.Path); err != nil || len(entries) > 0 {
				t.Errorf("on the shared storage: %v %v", entries, err)
			}
		})
	}
}

// An archive is unpacked on the node's own disk when others share the storage.
func TestTreeDir(t *testing.T) {
	for kind, own := range map[string]bool{
		settings.VolumeStorage:    true,
		settings.DirectoryStorage: true,
		settings.LocalStorage:     false,
	} {
		s := &settings.Settings{DataDir: t.TempDir(), Storage: settings.Storage{Kind: kind, Path: t.TempDir()}}
		dir, err := TreeDir(s)
		if err != nil || (filepath.Dir(dir) == s.DataDir) != own {
			t.Errorf("%s: %s %v", kind, dir, err)
		}
	}
}
