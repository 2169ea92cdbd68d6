package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Whatever text somebody brings into a record, it is one line, short, and nothing that
// a terminal obeys.
func TestAttack45ForeignText(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, nil)
	evil := "x\n{\"time\":\"2026-11-24T16:00:00Z\",\"action\":\"forged\",\"result\":\"ok\"}\r\n\x1b[2J\x1b]0;t\x07\u202e\x9b31m\xff" + strings.Repeat("é", 100_000)
	l.Write(t.Context(),
		Record{
			Node:     evil,
			Program:  evil,
			Actor:    Actor{User: evil, Proof: Proof(evil), As: evil, Eauth: evil, From: evil, Via: evil},
			Action:   evil,
			Object:   evil,
			Function: evil,
			Minions:  -1,
			JID:      evil,
			Result:   Result(evil),
			Detail:   evil,
			Op:       evil,
		})

	b, err := os.ReadFile(bookNamed(dir, actsShelf).current())
	if err != nil || bytes.Count(b, []byte{'\n'}) != 2 || len(b) > maxLine || bytes.ContainsAny(b, "\x1b\x07\r") {
		t.Fatalf("%d bytes: %.300q %v", len(b), b, err)
	}

	p := read(t, Query{}, dir)
	if len(p.Records) != 1 || p.Records[0].Action == "forged" || p.Records[0].Node != "n1" ||
		strings.ContainsAny(fmt.Sprint(p.Records[0]), "\x1b\n\r\u202e") {
		t.Errorf("%.300q", fmt.Sprint(p))
	}
}

// The longest record is one that is read.
func TestAttack45LongestRecord(t *testing.T) {
	for _, c := range []string{`"`, `\`, "<", "&", "é", "\u2028", "\t", "\x00", "\xff", "😀"} {
		dir := t.TempDir()
		s := strings.Repeat(c, 5000)
		open(t, dir, nil).Write(t.Context(),
			Record{Actor: Actor{User: s, Proof: Proof(s), As: s, Eauth: s, From: s, Via: s},
				Action: "a" + s, Object: s, Function: s, JID: s, Result: Result(s), Detail: s, Op: s})
		if p := read(t, Query{}, dir); len(p.Records) != 1 || p.Damaged != 0 {
			t.Errorf("%q: %d records, %d damaged", c, len(p.Records), p.Damaged)
		}
	}
}

// Strangers fill their own file, at a rate, and no act goes for it.
func TestAttack45Flood(t *testing.T) {
	dir := t.TempDir()
	var later atomic.Int64
	l := open(t, dir, func() time.Time { return at.Add(time.Duration(later.Load())) })
	l.Write(t.Context(), act("kept"))
	refused := func(from string) Record {
		return Record{
			Actor:    Actor{User: "eve", Proof: Unproven, From: from},
			Action:   "login",
			Result:   Refused,
			Stranger: true,
		}
	}

	for range 10_000 {
		l.Note(refused("192.0.2.7"))
	}

	for i := range 20_000 { // from a network of many
		l.Note(refused(fmt.Sprintf("10.%d.%d.1", i/250, i%250)))
	}

	later.Store(int64(time.Hour))
	l.Write(t.Context(), refused("192.0.2.7"))
	p := read(t, Query{Action: "login"}, dir)
	one, lost := 0, uint64(0)
	for _, r := range p.Records {
		lost += r.Lost
		if r.From == "192.0.2.7" {
			one++
		}
	}

	if one != 21 || len(p.Records) != 501 || lost != 30_001-501 {
		t.Errorf("%d records, %d of one source, %d missing", len(p.Records), one, lost)
	}

	if got := objects(read(t, Query{Action: "key.*"}, dir)); len(got) != 1 || got[0] != "kept" {
		t.Errorf("%v", got)
	}

	if b, _ := os.ReadFile(bookNamed(dir, actsShelf).current()); bytes.Count(b, []byte{'\n'}) != 2 {
		t.Errorf("strangers among acts: %.300s", b)
	}
}

// The master's account owns its files: what it puts in their place harms nobody who
// reads or writes them as root.
func TestAttack46Places(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	secret := `{"time":"2026-11-24T16:00:00Z","action":"secret","object":"hush","result":"ok"}` + "\n"
	for name, place := range map[string]func(path string) error{
		"link": func(path string) error {
			return errors.Join(os.WriteFile(outside, []byte(secret), 0o600), os.Symlink(outside, path))
		},
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		if err := place(bookNamed(dir, actsShelf).current()); err != nil {
			t.Fatal(err)
		}

		p, err := Read(t.Context(), "n1", Query{}, dir)
		if err == nil || len(p.Records) > 0 {
			t.Errorf("%s is read: %+v", name, p)
		}

		if err := bookNamed(dir, actsShelf).appendLines([][]byte{[]byte("{}\n")}, at); err == nil {
			t.Errorf("%s is written to", name)
		}
	}

	if b, _ := os.ReadFile(outside); string(b) != secret {
		t.Errorf("changed through a link: %q", b)
	}

	// Lines without end, and more than a file may hold.
	dir := t.TempDir()
	line := strings.Repeat("x", 1<<20) + "\n" + secret
	if err := os.WriteFile(bookNamed(dir, actsShelf).current(), []byte(strings.Repeat(line, 40)), 0o600); err != nil {
		t.Fatal(err)
	}

	if p := read(t, Query{}, dir); len(p.Records) < 10 || len(p.Records) > 16 || p.Damaged < 10 {
		t.Errorf("%d records, %d damaged", len(p.Records), p.Damaged)
	}
}

// FuzzRead: whatever stands in a file, what is given away is bounded and safe.
func FuzzRead(f *testing.F) {
	good, err := encode(act("web1"))
	if err != nil {
		f.Fatal(err)
	}

	f.Add(good)
	f.Add([]byte(`{"time":"2026-11-24T16:00:00Z","action":"a\u001b[2J\n","minions":-5,"result":"ok"}` + "\n\n{"))
	f.Add([]byte("null\n[]\n{\"time\":1}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(bookNamed(dir, actsShelf).current(), b, 0o600); err != nil {
			t.Fatal(err)
		}

		p := read(t, Query{}, dir)
		for _, r := range p.Records {
			if line, err := encode(r); err != nil || len(line) > maxLine ||
				bytes.Count(line, []byte{'\n'}) != 1 || bytes.ContainsAny(line, "\x1b\r") || r.Minions < 0 {
				t.Errorf("%q %v", line, err)
			}
		}
	})
}
