package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDropper: a pipe that nobody reads stops nobody, and the loss is told
// once somebody reads again.
func TestDropper(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])

	defer unix.Close(p[1])
	d := &lossyWriter{fd: p[1]}
	const lines = 10000
	for i := range lines {
		if n, err := fmt.Fprintf(d, "line %d\n", i); n < 6 || err != nil {
			t.Fatal(n, err)
		}
	}

	if d.dropped == 0 {
		t.Fatal("the pipe took everything")
	}

	buf := make([]byte, 1<<20)
	n, err := unix.Read(p[0], buf)
	if err != nil {
		t.Fatal(err)
	}

	got := bytes.Count(buf[:n], []byte("\n"))
	if got+d.dropped != lines || buf[n-1] != '\n' {
		t.Errorf("%d lines read, %d dropped, of %d", got, d.dropped, lines)
	}

	lost := d.dropped
	fmt.Fprintln(d, "after")
	if n, err = unix.Read(p[0], buf); err != nil {
		t.Fatal(err)
	}

	if want := fmt.Sprintf("%d lines were left out: nobody read them\nafter\n", lost); string(buf[:n]) != want {
		t.Errorf("%q", buf[:n])
	}

	if w := lossyPipe(new(strings.Builder)); fmt.Sprintf("%T", w) != "*strings.Builder" {
		t.Errorf("%T", w)
	}
}
