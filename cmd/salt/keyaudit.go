package main

import (
	"context"
	"fmt"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/master/keys"
)

// keyBook writes the audit records of one salt-key call: first the request, which must be on the
// disk before the work begins, and later the outcome for each key.
type keyBook struct {
	call   *keyCall
	log    *audit.Log
	record audit.Record
	keys   int
}

func (k *keyCall) openBook(ctx context.Context, verb string, sel selection) *keyBook {
	var ids []string
	for _, st := range keyDirs {
		ids = append(ids, sel[st]...)
	}
	b := &keyBook{call: k, log: audit.Open(k.cfg.Audit("salt-key", nil)),
		record: audit.Record{Actor: k.actor, Action: "key." + verb, Op: audit.NewOp()}}
	asked := b.record
	asked.Object, asked.Result = audit.Names(ids), audit.Asked
	b.log.Write(ctx, asked)
	return b
}

// waitEvery is the number of keys after which keyBook waits for the disk, so that the log's queue
// does not overflow.
const waitEvery = 1000

// noteKey records the outcome for the key of id. st is the state that the key was in.
func (b *keyBook) noteKey(ctx context.Context, id string, st keys.State, finger string, err error) {
	r := b.record
	r.Object, r.Detail = id, "was "+st.String()+", "+finger
	b.keys++
	if b.keys%waitEvery == 0 {
		b.log.Write(ctx, r.Ended(err))
		return
	}
	b.log.Note(r.Ended(err))
}

// close waits briefly until the records are on the disk.
func (b *keyBook) close() {
	b.log.Close()
	if err := b.log.Fault(); err != nil {
		fmt.Fprintf(b.call.stderr, "Not all of this is in the audit record: %s\n", printable.Text(err.Error()))
	}
}

// fingerOf returns the fingerprint of a key, or "no fingerprint" if the key cannot be read.
func (k *keyCall) fingerOf(st keys.State, id string) string {
	pem, err := k.keyPEM(st, id)
	if err != nil {
		return "no fingerprint"
	}
	f, err := keys.Fingerprint(pem, k.cfg.HashType)
	if err != nil {
		return "no fingerprint"
	}
	return f
}
