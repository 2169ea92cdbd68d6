package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var at = time.Unix(1750000000, 0)

func example(t *testing.T) Image {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, bytes.Repeat([]byte("code"), 1<<15), 0o600); err != nil {
		t.Fatal(err)
	}

	base := []Entry{
		{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "etc", Mode: fs.ModeDir | 0o755},
		{Path: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0\n")},
		{Path: "var", Mode: fs.ModeDir | 0o750, Owner: 450},
	}

	layer := func(name string) []Entry {
		return []Entry{
			{Path: "bin/" + name, Mode: 0o755, Source: program},
			{Path: "bin/link", Mode: fs.ModeSymlink | 0o777, Link: name},
		}
	}

	return Image{Ref: "1.2.3", Created: at, Labels: map[string]string{"title": "example"},
		Config:    Config{User: "450:450", Cmd: []string{"/bin/a"}},
		Platforms: []Platform{{"amd64", [][]Entry{base, layer("a")}}, {"arm64", [][]Entry{base, layer("b")}}}}
}

// blobs reads a layout and fails unless every blob is called after its digest.
func blobs(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, "blobs/sha256"))
	if err != nil {
		t.Fatal(err)
	}

	out := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, "blobs/sha256", f.Name()))
		if err != nil {
			t.Fatal(err)
		}

		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != f.Name() {
			t.Errorf("blob %s has the digest %s", f.Name(), got)
		}

		out["sha256:"+f.Name()] = b
	}

	return out
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}

// follow gives the manifest that a descriptor leads to.
func follow(t *testing.T, all map[string][]byte, d descriptor, kind string) (m manifest) {
	t.Helper()
	b := all[d.Digest]
	if int64(len(b)) != d.Size || d.MediaType != kind {
		t.Fatalf("%+v: %d bytes, want type %s", d, len(b), kind)
	}
	decode(t, b, &m)
	return m
}

// TestLayout follows every descriptor from index.json: digest and size are right,
// the configuration names the digests of the layers before compression, both kinds
// of machines are there and share what they have in common.
func TestLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "oci")
	if err := Write(dir, example(t)); err != nil {
		t.Fatal(err)
	}

	all := blobs(t, dir)
	version, err := os.ReadFile(filepath.Join(dir, "oci-layout"))
	if err != nil || string(version) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout: %s %v", version, err)
	}

	b, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}

	var top manifest
	decode(t, b, &top)
	if top.SchemaVersion != 2 || len(top.Manifests) != 1 || top.Manifests[0].Annotations[refName] != "1.2.3" {
		t.Fatalf("index.json: %s", b)
	}

	index := follow(t, all, top.Manifests[0], mediaIndex)
	var arch, shared []string
	for _, d := range index.Manifests {
		arch = append(arch, d.Platform.OS+"/"+d.Platform.Architecture)
		m := follow(t, all, d, mediaManifest)
		var config struct {
			Architecture, OS string
			Config           Config
			RootFS           struct {
				Type    string
				DiffIDs []string `json:"diff_ids"`
			}
		}

		if int64(len(all[m.Config.Digest])) != m.Config.Size || m.Config.MediaType != mediaConfig {
			t.Errorf("config %+v", m.Config)
		}

		decode(t, all[m.Config.Digest], &config)
		if config.Architecture != d.Platform.Architecture || config.OS != "linux" ||
			config.Config.User != "450:450" || config.Config.Labels["title"] != "example" || config.RootFS.Type != "layers" {
			t.Errorf("config %s", all[m.Config.Digest])
		}

		var diffIDs []string
		for _, l := range m.Layers {
			if int64(len(all[l.Digest])) != l.Size || l.MediaType != mediaLayer {
				t.Errorf("layer %+v", l)
			}
			diffIDs = append(diffIDs, fmt.Sprintf("sha256:%x", sha256.Sum256(unpacked(t, all[l.Digest]))))
		}

		if !slices.Equal(diffIDs, config.RootFS.DiffIDs) {
			t.Errorf("diff_ids %v, want %v", config.RootFS.DiffIDs, diffIDs)
		}

		shared = append(shared, m.Layers[0].Digest)
	}

	if !slices.Equal(arch, []string{"linux/amd64", "linux/arm64"}) || shared[0] != shared[1] {
		t.Errorf("kinds %v, first layers %v", arch, shared)
	}

	if len(all) != 1+2+2+3 { // index, manifests, configurations, layers
		t.Errorf("%d blobs", len(all))
	}
}

func unpacked(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLayer: names, kinds, owners, modes and times are those of the entries.
func TestLayer(t *testing.T) {
	var w bytes.Buffer
	if _, err := writeLayer(&w, example(t).Platforms[0].Layers[0], at); err != nil {
		t.Fatal(err)
	}

	var got []string
	r := tar.NewReader(bytes.NewReader(unpacked(t, w.Bytes())))
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil || !h.ModTime.Equal(at) {
			t.Fatal(err, h)
		}

		got = append(got, fmt.Sprintf("%c %s %o %d:%d", h.Typeflag, h.Name, h.Mode, h.Uid, h.Gid))
	}

	if want := []string{"5 etc/ 755 0:0", "0 etc/passwd 644 0:0", "5 tmp/ 1777 0:0", "5 var/ 750 450:450"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTwice: the same entries in another order, at another place, give the same bytes,
// as a folder and as an archive.
func TestTwice(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	img := example(t)
	if err := Write(filepath.Join(one, "oci"), img); err != nil {
		t.Fatal(err)
	}

	for _, p := range img.Platforms {
		for _, l := range p.Layers {
			slices.Reverse(l)
		}
	}

	if err := Write(filepath.Join(two, "oci"), img); err != nil {
		t.Fatal(err)
	}

	var archives [2][]byte
	for i, dir := range []string{one, two} {
		if err := Archive(filepath.Join(dir, "oci.tar"), filepath.Join(dir, "oci"), at); err != nil {
			t.Fatal(err)
		}

		b, err := os.ReadFile(filepath.Join(dir, "oci.tar"))
		if err != nil {
			t.Fatal(err)
		}

		archives[i] = b
	}

	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the second one has other bytes")
	}

	var names []string
	r := tar.NewReader(bytes.NewReader(archives[0]))
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		names = append(names, h.Name)
	}

	if len(names) != 4+8 || !slices.Contains(names, "oci-layout") || !slices.Contains(names, "index.json") {
		t.Errorf("the archive has %q", names)
	}
}

func TestRefused(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	img := example(t)
	if err := Write(full, img); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a folder with files: %v", err)
	}

	for name, e := range map[string]Entry{
		"is no path in an image": {Path: "../etc/passwd"}, "is no path": {Path: ""}, "no path in": {Path: "/etc"},
		"no files of type": {
			Path: "pipe",
			Mode: fs.ModeNamedPipe,
		}, "no such file": {Path: "a", Source: filepath.Join(full, "none")},
	} {
		if _, err := writeLayer(io.Discard, []Entry{e}, at); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want %s", e, err, name)
		}
	}

	twice := []Entry{{Path: "a", Mode: 0o644}, {Path: "a", Mode: 0o644}}
	if _, err := writeLayer(io.Discard, twice, at); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("one path twice: %v", err)
	}

	if err := Write(filepath.Join(full, "oci"), Image{Ref: "x"}); err == nil {
		t.Error("an image for no machine was written")
	}
}
