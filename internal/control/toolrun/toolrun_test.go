package toolrun

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	ok := Request{Tool: "salt", Words: []string{"*", "test.ping"}, User: "root", Columns: 80}
	with := func(f func(*Request)) Request { r := ok; f(&r); return r }
	for name, tt := range map[string]struct {
		r    Request
		want string // "": it is let through
	}{
		"salt":          {ok, ""},
		"salt-run":      {with(func(r *Request) { r.Tool = "salt-run" }), ""},
		"sudo":          {with(func(r *Request) { r.User = "sudo_al.ice-1" }), ""},
		"another tool":  {with(func(r *Request) { r.Tool = "salt-key" }), "salt-key"},
		"a path":        {with(func(r *Request) { r.Tool = "../salt" }), "../salt"},
		"no tool":       {with(func(r *Request) { r.Tool = "" }), "cannot be asked"},
		"words":         {with(func(r *Request) { r.Words = make([]string, maxWords+1) }), "too many"},
		"null":          {with(func(r *Request) { r.Words = []string{"a\x00b"} }), "UTF-8"},
		"bytes":         {with(func(r *Request) { r.Words = []string{"\xff"} }), "UTF-8"},
		"columns":       {with(func(r *Request) { r.Columns = MaxColumns + 1 }), "columns"},
		"negative":      {with(func(r *Request) { r.Columns = -1 }), "columns"},
		"another user":  {with(func(r *Request) { r.User = "bob" }), "only root"},
		"nobody":        {with(func(r *Request) { r.User = "" }), "only root"},
		"sudo of none":  {with(func(r *Request) { r.User = "sudo_" }), "only root"},
		"sudo of path":  {with(func(r *Request) { r.User = "sudo_../x" }), "only root"},
		"sudo of lines": {with(func(r *Request) { r.User = "sudo_x\nroot" }), "only root"},
		"long sudo":     {with(func(r *Request) { r.User = "sudo_" + strings.Repeat("x", maxUser) }), "only root"},
	} {
		err := tt.r.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}

	large := with(func(r *Request) { r.Words = []string{strings.Repeat("x", MaxBytes)} })
	if _, err := large.Encode(); err == nil {
		t.Error("a large request was encoded")
	}

	if _, err := Read(strings.NewReader(`{"tool":"salt","user":"root","words":["` + large.Words[0] +
		`"]}`)); err == nil {
		t.Error("a large request was read")
	}

	b, err := ok.Encode()
	if err != nil {
		t.Fatal(err)
	}

	if got, err := Read(bytes.NewReader(b)); err != nil || got.Tool != ok.Tool || got.User != ok.User ||
		!slices.Equal(got.Words, ok.Words) {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	long := bytes.Repeat([]byte("0123456789"), 2*maxFrame/10+1)
	for _, f := range []struct {
		k    Kind
		data []byte
	}{{Stdout, long}, {Alive, nil}, {Stderr, []byte("no")}, {Exit, []byte{11}}} {
		if err := WriteFrame(&b, f.k, f.data); err != nil {
			t.Fatal(err)
		}
	}

	whole := slices.Clone(b.Bytes())
	out, kinds := []byte{}, ""
	for {
		k, data, err := ReadFrame(&b)
		if err != nil {
			t.Fatal(err)
		}

		kinds += string(k)
		if k == Stdout {
			out = append(out, data...)
		}

		if k == Exit {
			if data[0] != 11 {
				t.Errorf("exit code %d", data[0])
			}
			break
		}
	}

	if kinds != "oooaex" || !bytes.Equal(out, long) {
		t.Errorf("frames %s with %d bytes", kinds, len(out))
	}

	for name, cut := range map[string][]byte{"nothing": nil, "half a head": whole[:2], "half a frame": whole[:100]} {
		if _, _, err := ReadFrame(bytes.NewReader(cut)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("o\x00\x02hi"))
	f.Add([]byte("x\x00\x01\x00"))
	f.Add([]byte("x\x00\x02\x00\x00"))
	f.Add([]byte("a\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		k, data, err := ReadFrame(bytes.NewReader(in))
		if err != nil {
			return
		}

		var b bytes.Buffer
		if err := WriteFrame(&b, k, data); err != nil || !bytes.HasPrefix(in, b.Bytes()) {
			t.Errorf("%q was read from %q: %v", b.Bytes(), in, err)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"tool":"salt","words":["*","test.ping"],"user":"root"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if r, err := Read(bytes.NewReader(in)); err == nil && r.Check() != nil {
			t.Errorf("%+v was read", r)
		}
	})
}
