package fileserver

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// A chunk packs itself as the map of Call would be packed, whatever its size,
// also when the file became shorter after it was opened.
func TestChunkPacksAsTheMap(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 255, 65535, 65536, 70000, 1 << 20, 1<<20 + 1} {
		for _, cut := range []int{n, n / 2, 31, 0} {
			if cut > n {
				continue
			}

			root := tree(t, map[string]string{"d/f": string(bytes.Repeat([]byte("\xffab"), n/3+1)[:n])})
			s := server(t, Config{Roots: map[string][]string{"base": {root}}})
			load := value.NewMap("path", "d/f", "saltenv", "base", "loc", 0)
			v, err := s.Serve(t.Context(), load)
			c, ok := v.(*Chunk)
			if err != nil || !ok {
				t.Fatalf("%d bytes: %T, %v", n, v, err)
			}

			if err := os.Truncate(filepath.Join(root, "d/f"), int64(cut)); err != nil {
				t.Fatal(err)
			}

			got, err := c.AppendPacked([]byte("before"), msgpack.AppendRawHead)
			if err != nil {
				t.Fatal(err)
			}

			if err := c.Close(); err != nil {
				t.Fatal(err)
			}

			want, err := s.Call(t.Context(), "_serve_file", "m", load)
			if err != nil {
				t.Fatal(err)
			}

			packed, err := msgpack.Append([]byte("before"), want, msgpack.Raw)
			if err != nil || !bytes.Equal(got, packed) {
				t.Errorf("%d bytes cut to %d: %d bytes packed, want %d; %v", n, cut, len(got), len(packed), err)
			}

			if s.Stats().Busy != 0 {
				t.Error("the turn at the disk is not given back")
			}
		}
	}
}

// What is no chunk comes as a map, and leaves no turn at the disk taken.
func TestServeWithoutAChunk(t *testing.T) {
	root := tree(t, map[string]string{"f": "content"})
	s := server(t, Config{Roots: map[string][]string{"base": {root}}})
	for name, load := range map[string]*value.Map{
		"missing":  value.NewMap("path", "none", "saltenv", "base", "loc", 0),
		"negative": value.NewMap("path", "f", "saltenv", "base", "loc", -1),
		"no place": value.NewMap("path", "f", "saltenv", "base"),
		"gzip":     value.NewMap("path", "f", "saltenv", "base", "loc", 0, "gzip", 5),
	} {
		v, err := s.Serve(t.Context(), load)
		want, werr := s.Call(t.Context(), "_serve_file", "m", load)
		m, ok := v.(*value.Map)
		if err != nil || werr != nil || !ok {
			t.Errorf("%s: %T, %v, %v", name, v, err, werr)
			continue
		}

		a, _ := m.Bytes("data")
		b, _ := want.(*value.Map).Bytes("data")
		if !bytes.Equal(a, b) || (name == "gzip") != (len(a) > 0) {
			t.Errorf("%s: %q, want %q", name, a, b)
		}

		if s.Stats().Busy != 0 {
			t.Errorf("%s: the turn at the disk is not given back", name)
		}
	}
}
