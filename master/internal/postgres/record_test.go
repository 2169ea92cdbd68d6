package postgres

import (
	"reflect"
	"testing"
	"time"
)

func TestRecordKeepsItsFields(t *testing.T) {
	at := time.Date(2026, 11, 29, 8, 0, 0, 123456789, time.UTC)
	for _, r := range []record{
		{
			kind:      kindReturn,
			time:      at,
			added:     at.Add(time.Second),
			jid:       "20261129080000000000",
			minion:    "m",
			user:      "root",
			function:  "test.ping",
			arguments: []byte("[]"),
			summary:   []byte{1, 2},
			out:       []byte{3},
			content:   []byte{4, 5},
		},
		{kind: kindFirstLoad, time: at, added: at, jid: "1", arguments: []byte{}, summary: []byte{}, out: []byte{}, content: []byte{}},
	} {
		got, err := parseRecord(r.pack())
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v %v, not %+v", got, err, r)
		}
	}
}

// FuzzParseRecord: no bytes of a damaged disk end the process, and what can be read is packed to the same.
func FuzzParseRecord(f *testing.F) {
	r := record{kind: kindReturn, jid: "1", minion: "m", content: []byte("x")}
	f.Add(r.pack())
	f.Add([]byte{recordVersion + 1, byte(kindLoad)})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		again, err := parseRecord(r.pack())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v %v, not %+v", again, err, r)
		}
	})
}
