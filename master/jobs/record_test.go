package jobs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

func segmentOf(recs ...*record) []byte {
	m := mark{1, 2, 3, 4, 5, 6, 7, 8}
	b := append([]byte(segmentMagic), m[:]...)
	for _, r := range recs {
		at := len(b)
		b = r.appendTo(b)
		copy(b[at:], m[:])
	}
	return b
}

func samples(t testing.TB) []*record {
	return []*record{
		{kind: kindLoad, time: 1, jid: jid1, a: wire(t, "jobcache_load_p.bin")},
		{
			kind: kindReturn,
			time: 2,
			jid:  jid1,
			id:   "min8",
			a:    wire(t, "jobcache_return_p.bin"),
			b:    wire(t, "jobcache_out_p.bin"),
		},
		{kind: kindReturn, time: 3, jid: jid1, id: "min7", a: []byte{}},
		{kind: kindReturn, time: 4, jid: jid1, id: "min6", a: []byte{}, b: []byte{}},
	}
}

func ids(t testing.TB, b []byte) (got []string, damaged, tail int) {
	damaged, tail, err := scanSegment(b, func(r *record) error {
		got = append(got, r.id)
		return nil
	})
	check.Must(t, err)
	return got, damaged, tail
}

func TestRecords(t *testing.T) {
	recs := samples(t)
	b := segmentOf(recs...)
	i := 0
	damaged, tail, err := scanSegment(b, func(r *record) error {
		w := recs[i]
		if r.kind != w.kind || r.time != w.time || r.jid != w.jid || r.id != w.id || !bytes.Equal(r.a, w.a) ||
			!bytes.Equal(r.b, w.b) || (r.b == nil) != (w.b == nil) {
			t.Errorf("record %d is %+v", i, r)
		}
		i++
		return nil
	})
	if i != len(recs) || damaged != 0 || tail != 0 || err != nil {
		t.Error(i, damaged, tail, err)
	}
}

// However a segment is cut, the records in front are found and nothing else.
func TestTornTail(t *testing.T) {
	recs := samples(t)
	b := segmentOf(recs...)
	for n := range b {
		got, damaged, tail := ids(t, b[:n])
		whole, end := 0, segmentHead
		for _, r := range recs {
			if end+r.size() > n {
				break
			}
			end += r.size()
			whole++
		}

		if n < segmentHead {
			end = 0
		}

		if len(got) != whole || damaged != 0 || tail != tornBytes(b[end:n]) {
			t.Fatalf("cut at %d: %v, damaged %d, tail %d", n, got, damaged, tail)
		}
	}
}

// Whatever byte is damaged, the other records are found.
func TestDamagedRecord(t *testing.T) {
	recs := samples(t)
	b := segmentOf(recs...)
	for n := segmentHead; n < len(b); n++ {
		bad := bytes.Clone(b)
		bad[n] ^= 0x5a
		got, damaged, tail := ids(t, bad)
		if len(got) != len(recs)-1 || damaged+min(tail, 1) != 1 {
			t.Fatalf("byte %d: %v, damaged %d, tail %d", n, got, damaged, tail)
		}
	}
}

// If a minion puts the bytes of a record into its return and the write of that return is torn,
// those bytes are not read as a record.
func TestForgedRecordInsideATornOne(t *testing.T) {
	forged := (&record{kind: kindReturn, jid: jid1, id: "victim", a: []byte("x")}).appendTo(nil)
	b := segmentOf(&record{kind: kindReturn, jid: jid1, id: "evil", a: append(forged, make([]byte, 100)...)})
	got, _, tail := ids(t, b[:len(b)-10])
	if len(got) != 0 || tail == 0 {
		t.Errorf("found %v", got)
	}
}

func TestDamagedSegmentIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	check.Must(t, os.MkdirAll(dir+".journal", 0o700))
	pack := func(v any) []byte { return []byte(packed(t, value.NewMap("return", v))) }
	recs := []*record{
		{kind: kindReturn, jid: jid1, id: "a", a: pack(1)},
		{kind: kindReturn, jid: jid1, id: "b", a: pack(2)},
		{kind: kindReturn, jid: "../../../x", id: "c", a: pack(3)},
		{kind: kindReturn, jid: jid1, id: "../c", a: pack(3)},
		{kind: kindReturn, jid: jid1, id: "d", a: pack(4)},
		{kind: 99, jid: jid1, id: "e", a: pack(5)},
	}

	b := segmentOf(recs...)
	b[segmentHead+recs[0].size()+30] ^= 1 // in the second record
	b = append(b, "torn"...)
	check.Must(t, os.WriteFile(dir+".journal/0000000000000007.log", b, 0o600))
	check.Must(t, os.WriteFile(dir+".journal/0000000000000008.log", nil, 0o600))
	c := open(t, Config{Dir: dir})
	got, err := c.Returns(await.Context(t), jid1)
	check.Must(t, err)

	if fmt.Sprint(got.Keys()) != "[a d]" {
		t.Errorf("returns of %v", got.Keys())
	}

	kept, err := os.ReadFile(dir + ".journal/quarantine/0000000000000007.log")
	if err != nil || !bytes.Equal(kept, b) {
		t.Error("the damaged segment was not kept", err)
	}

	if c.Stats().Quarantined != 1 {
		t.Errorf("%+v", c.Stats())
	}

	save(t, c, ret(jid1, "f", 1))
}

func FuzzScan(f *testing.F) {
	recs := samples(f)
	f.Add(segmentOf(recs...))
	f.Add(segmentOf(recs[1:3]...)[:300])
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []*record
		_, tail, err := scanSegment(b, func(r *record) error {
			again = append(again, r)
			return nil
		})
		if err != nil || tail > len(b) {
			t.Fatal(tail, err)
		}

		n := 0
		if _, tail, err := scanSegment(segmentOf(again...), func(*record) error { n++; return nil }); n != len(again) || tail != 0 || err != nil {
			t.Fatalf("%d of %d records, tail %d, %v", n, len(again), tail, err)
		}
	})
}
