package zmtp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// The handshake bytes of this package equal those captured from a real master.
func TestHandshakeBytes(t *testing.T) {
	for file, socket := range map[string]string{
		"zmtp_req_min6_s2c.bin": "ROUTER", "zmtp_req_min8_s2c.bin": "ROUTER", "zmtp_sub_s2c.bin": "PUB",
	} {
		if got, want := appendReady(greeting(), socket, ""), vector(t, file); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", file, got, want)
		}
	}

	// The package understands the captured handshakes of real minions.
	for file, want := range map[string]metadata{
		"zmtp_req_min6_c2s.bin": {"REQ", "salt-req/minion/min6/28967/0"},
		"zmtp_req_min8_c2s.bin": {"REQ", ""},
		"zmtp_sub_c2s.bin":      {"SUB", ""},
	} {
		b := vector(t, file)
		if minor, err := parseGreeting(b[:greetingSize]); err != nil || minor != 1 {
			t.Fatalf("%s: minor %d, %v", file, minor, err)
		}

		h, n, err := parseHeader(b[greetingSize:])
		if err != nil || !h.command {
			t.Fatalf("%s: %+v, %v", file, h, err)
		}

		b = b[greetingSize+n:]
		name, body, err := parseCommand(b[:h.size])
		if err != nil || string(name) != "READY" {
			t.Fatalf("%s: %q, %v", file, name, err)
		}

		if got, err := parseMetadata(body); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", file, got, err, want)
		}
	}

	// The rest of the SUB capture is its subscription to everything.
	b := vector(t, "zmtp_sub_c2s.bin")
	if got := appendCommand(nil, "SUBSCRIBE", nil); !bytes.HasSuffix(b, got) {
		t.Errorf("subscription is %x", got)
	}
}

func TestParseHeader(t *testing.T) {
	long := func(flags byte, size uint64) []byte {
		b := []byte{flags}
		for i := 7; i >= 0; i-- {
			b = append(b, byte(size>>(8*i)))
		}
		return b
	}

	for _, c := range []struct {
		in   []byte
		want header
		n    int
		bad  bool
	}{
		{in: nil},
		{in: []byte{0}},
		{in: []byte{2, 0, 0, 0, 0, 0, 0, 0}},
		{in: []byte{0, 0}, n: 2},
		{in: []byte{1, 7}, n: 2, want: header{more: true, size: 7}},
		{in: []byte{4, 255}, n: 2, want: header{command: true, size: 255}},
		{in: long(2, 3), n: 9, want: header{size: 3}},
		{in: long(3, 1<<40), n: 9, want: header{more: true, size: 1 << 40}},
		{in: long(2, 1<<63-1), n: 9, want: header{size: 1<<63 - 1}},
		{in: long(2, 1<<63), bad: true},
		{in: []byte{5, 0}, bad: true},
		{in: []byte{8, 0}, bad: true},
		{in: []byte{0x80}, bad: true},
	} {
		h, n, err := parseHeader(c.in)
		if (err != nil) != c.bad || n != c.n || (err == nil && h != c.want) {
			t.Errorf("%x: %+v, %d, %v", c.in, h, n, err)
		}
		if err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("%x: %v is no protocol error", c.in, err)
		}
	}
}

func TestParseMetadata(t *testing.T) {
	prop := func(name, value string) string { return string(appendProperty(nil, name, value)) }
	for name, c := range map[string]struct {
		in   string
		want metadata
		bad  bool
	}{
		"empty":       {},
		"other case":  {in: prop("socket-TYPE", "REQ"), want: metadata{socketType: "REQ"}},
		"unknown":     {in: prop("X-Foo", "bar") + prop("Socket-Type", "SUB"), want: metadata{socketType: "SUB"}},
		"name only":   {in: "\x0bSocket-Type", bad: true},
		"short name":  {in: "\x0bSocket", bad: true},
		"no name":     {in: "\x00\x00\x00\x00\x00", bad: true},
		"short value": {in: "\x01a\x00\x00\x00\x05abc", bad: true},
		"huge value":  {in: "\x01a\xff\xff\xff\xffabc", bad: true},
		"identity":    {in: prop("Identity", strings.Repeat("i", 256)), bad: true},
	} {
		got, err := parseMetadata([]byte(c.in))
		if (err != nil) != c.bad || (err == nil && got != c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestParseGreeting(t *testing.T) {
	good := string(greeting())
	for name, c := range map[string]struct {
		in string
		ok bool
	}{
		"own":       {good, true},
		"padding":   {"\xff\x00\x00\x00\x00\x00\x00\x00\x1d\x7f" + good[10:], true},
		"minor 0":   {good[:11] + "\x00" + good[12:], true},
		"major 4":   {good[:10] + "\x04" + good[11:], true},
		"major 2":   {good[:10] + "\x02" + good[11:], false},
		"signature": {"\xff" + good[1:9] + "\x7e" + good[10:], false},
		"first":     {"\xfe" + good[1:], false},
		"plain":     {good[:12] + "PLAIN" + good[17:], false},
		"curve":     {good[:12] + "CURVE" + good[17:], false},
		"null tail": {good[:12] + "NULLX" + good[17:], false},
		"short":     {good[:63], false},
	} {
		if _, err := parseGreeting([]byte(c.in)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
