package backup

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// FuzzUnpack: whatever an archive holds, it ends, stays within its bounds and
// below its directory, and makes nothing but files and directories.
func FuzzUnpack(f *testing.F) {
	for _, names := range [][]string{
		{"pki/minions/web1"},
		{"srv/salt/a/b", "srv/salt/a/c", "appliance.yaml"},
		{"../x"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		add := func(name, text string) {
			if err := w.WriteHeader(&tar.Header{
				Name:     name,
				Typeflag: tar.TypeReg,
				Mode:     0o600,
				Size:     int64(len(text)),
			}); err != nil {
				f.Fatal(err)
			}

			if _, err := w.Write([]byte(text)); err != nil {
				f.Fatal(err)
			}
		}

		add(manifestName, `{"format":1,"jobs":true}`)
		for _, n := range names {
			add(n, "text of "+n)
		}

		if err := w.Close(); err != nil {
			f.Fatal(err)
		}

		f.Add(b.Bytes())
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}

		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()

		const most = 64 << 10
		var sum Summary
		x := &extractor{ctx: t.Context(), sum: &sum, limits: Limits{Bytes: most, Entries: 50}, seen: map[string]bool{}}
		_ = x.unpack(bytes.NewReader(text), root)
		var size int64
		err = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			fi, err := e.Info()
			switch {
			case err != nil:
				return err
			case fi.Mode().IsRegular():
				size += fi.Size()
			case !fi.IsDir():
				t.Errorf("%s is %s", path, fi.Mode())
			}

			if rel, err := filepath.Rel(top, path); err != nil ||
				rel != "." && rel != "in" && filepath.Dir(rel) == "." {
				t.Errorf("%s lies outside", path)
			}

			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		if size > most {
			t.Errorf("%d bytes were written", size)
		}
	})
}
