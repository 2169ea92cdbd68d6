package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"saltern/master/value"
)

// fetch gets a file in chunks, as salt's file client does, and compares it
// with the hash that the master gives (salt/fileclient.py RemoteClient).
func (p *player) fetch(ctx context.Context, path, env string) (size int64, err error) {
	answer, err := p.ask(ctx, "_file_hash", "path", path, "saltenv", env)
	if err != nil {
		return 0, err
	}

	want, _ := answer.(*value.Map)
	if want.Str("hsum") == "" || want.Str("hash_type") != "sha256" {
		return 0, fmt.Errorf("_file_hash of %s: answered %.80v", path, answer)
	}

	sum := sha256.New()
	for {
		answer, err := p.ask(ctx, "_serve_file", "path", path, "saltenv", env, "loc", size)
		if err != nil {
			return size, err
		}

		chunk, _ := answer.(*value.Map)
		data, ok := chunk.Bytes("data")
		if !ok {
			return size, fmt.Errorf("_serve_file of %s: answered %.80v", path, answer)
		}
		if len(data) == 0 {
			break
		}

		sum.Write(data)
		size += int64(len(data))
	}

	if got := hex.EncodeToString(sum.Sum(nil)); got != want.Str("hsum") {
		return size, fmt.Errorf("%s has the SHA-256 %s, the master says %s", path, got, want.Str("hsum"))
	}

	return size, nil
}
