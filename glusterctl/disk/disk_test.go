package disk

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"saltern/internal/command"

	"golang.org/x/sys/unix"
)

// sparse is a disk of MinSize with some bytes at some places.
type sparse struct {
	at  int64
	set map[int64]byte
}

func (s *sparse) Seek(off int64, _ int) (int64, error) { s.at = off; return off, nil }
func (s *sparse) Close() error                         { return nil }
func (s *sparse) Read(p []byte) (int, error) {
	clear(p)
	for i, b := range s.set {
		if i >= s.at && i < s.at+int64(len(p)) {
			p[i-s.at] = b
		}
	}
	s.at += int64(len(p))
	return len(p), nil
}

func finder() Finder {
	sys := fstest.MapFS{}
	add := func(name string, files map[string]string) {
		sys["block/"+name+"/size"] = &fstest.MapFile{Data: []byte("2097152\n")}
		for f, v := range files {
			sys["block/"+name+"/"+f] = &fstest.MapFile{Data: []byte(v)}
		}
	}

	add("sda", map[string]string{"sda1/size": "2"})
	add("sdb", map[string]string{"device/model": "Fine\x1b[1m disk  "})
	add("sdc", map[string]string{"ro": "1\n"})
	add("sdd", map[string]string{"holders/dm-0/x": ""})
	add("sde", map[string]string{"dev": "8:64\n"})
	add("sdf", nil)
	add("sdg", nil)
	add("sdh", map[string]string{"removable": "1"})
	add("loop0", nil)
	add("dm-0", nil)
	sys["block/sdi/size"] = &fstest.MapFile{Data: []byte("2048\n")}
	sys["block/sdj/size"] = &fstest.MapFile{Data: []byte("0\n")}

	return Finder{
		Sys:    sys,
		Mounts: []byte("30 1 8:64 / /mnt/x rw - xfs /dev/sde rw\n"),
		Open: func(name string) (io.ReadSeekCloser, error) {
			switch name {
			case "sdb":
				return &sparse{}, nil
			case "sdf": // a file system at the very start
				return &sparse{set: map[int64]byte{0: 'X'}}, nil
			case "sdg": // an MD superblock near the end
				return &sparse{set: map[int64]byte{minSize - 8192: 1}}, nil
			}

			return nil, errors.New("must not be opened")
		},
	}
}

func TestFind(t *testing.T) {
	got, err := finder().Find()
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"sda": "has partitions",
		"sdb": "",
		"sdc": "read-only",
		"sdd": "in use by dm-0",
		"sde": "mounted at /mnt/x",
		"sdf": "not empty",
		"sdg": "not empty",
		"sdh": "removable",
		"sdi": "smaller",
	}
	if len(got) != len(want) {
		t.Errorf("%d disks: %+v", len(got), got)
	}

	for _, d := range got {
		w, ok := want[d.Name]
		if !ok || !strings.HasPrefix(d.Used, w) || w == "" && d.Used != "" {
			t.Errorf("%s: %q, want %q", d.Name, d.Used, w)
		}
		if d.Name == "sdb" && (d.Size != minSize || d.Model != "Fine[1m disk") {
			t.Errorf("%+v", d)
		}
	}
}

type recorder struct {
	argv []string
	exit int
}

func (r *recorder) Run(_ context.Context, argv []string) (command.Output, error) {
	r.argv = argv
	return command.Output{Exit: r.exit, Stderr: []byte("no\n")}, nil
}

func TestFormatOnlyWhatIsEmpty(t *testing.T) {
	f := finder()
	for _, name := range []string{"sda", "sde", "sdf", "sdg"} {
		r := &recorder{}
		if err := f.Format(t.Context(), r, Disk{
			Name: name,
			Path: "/dev/" + name,
		}, "bricks", false); !errors.Is(err, errNotEmpty) || r.argv != nil {
			t.Errorf("%s: %v %v", name, err, r.argv)
		}
	}

	r := &recorder{}
	if err := f.Format(t.Context(), r, Disk{
		Name: "sdb",
		Path: "/dev/sdb",
	}, "bricks", false); err != nil || strings.Join(r.argv, " ") != "mkfs.xfs -q -i size=512 -L bricks /dev/sdb" {
		t.Errorf("%v %v", err, r.argv)
	}

	if err := f.Format(t.Context(), r, Disk{
		Name: "sdf",
		Path: "/dev/sdf",
	}, "bricks", true); err != nil || !strings.Contains(strings.Join(r.argv, " "), " -f ") {
		t.Errorf("%v %v", err, r.argv)
	}

	r.exit = 1
	if err := f.Format(t.Context(), r, Disk{Name: "sdb", Path: "/dev/sdb"}, "bricks", false); err == nil {
		t.Error("a failure of mkfs is no error")
	}

	if err := f.Format(t.Context(), r, Disk{Name: "sdz"}, "bricks", false); err == nil {
		t.Error("a disk that is gone is no error")
	}
}

func TestBricks(t *testing.T) {
	dir := t.TempDir()
	if err := CheckRoot("/"); !errors.Is(err, errRootDisk) {
		t.Errorf("root: %v", err)
	}

	if err := CheckRoot("/none/of/these"); !errors.Is(err, errRootDisk) {
		t.Errorf("a directory to be made on the root file system: %v", err)
	}

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := CheckRoot(filepath.Join(file, "none")); err == nil {
		t.Error("a directory below a file is accepted")
	}

	// Another file system, where there is one.
	if err := CheckRoot("/proc/none"); err != nil {
		t.Errorf("a directory to be made on another file system: %v", err)
	}

	if err := CheckRoot("/proc"); err != nil {
		t.Errorf("/proc: %v", err)
	}

	b := filepath.Join(dir, "b")
	if err := os.MkdirAll(filepath.Join(b, ".glusterfs/00"), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := unix.Setxattr(b, marks[0], []byte("0123456789abcdef"), 0); err != nil && os.Getuid() == 0 {
		t.Logf("no trusted attributes here: %v", err)
	}

	if err := ClearBrick(b); err != nil {
		t.Fatal(err)
	}

	if n, _ := unix.Getxattr(b, marks[0], make([]byte, 32)); n > 0 {
		t.Error("the mark is still there")
	}

	if err := os.WriteFile(filepath.Join(b, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}

	if err := ClearBrick(b); !errors.Is(err, errNotEmpty) {
		t.Errorf("a brick with a file: %v", err)
	}

	if _, err := os.Stat(filepath.Join(b, "file")); err != nil {
		t.Error(err)
	}
}
