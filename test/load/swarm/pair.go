package main

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"saltern/master/crypt"
	"saltern/test/minion"
)

// pair is a key pair of minions and the proof of it that their requests carry.
type pair struct {
	key   *rsa.PrivateKey
	proof []byte
}

// loadPairs reads key pairs from a folder, and makes those that are missing.
func loadPairs(dir string, n int) ([]pair, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	pairs := make([]pair, n)
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	for i := range pairs {
		g.Go(func() (err error) {
			pairs[i], err = loadPair(filepath.Join(dir, fmt.Sprintf("key%04d.pem", i)))
			return err
		})
	}
	return pairs, g.Wait()
}

func loadPair(path string) (p pair, err error) {
	p.key, err = crypt.LoadPrivate(path, "")
	if errors.Is(err, fs.ErrNotExist) {
		if err = makePrivate(path); err == nil {
			p.key, err = crypt.LoadPrivate(path, "")
		}
	}
	if err == nil {
		p.proof, err = minion.Prove(p.key)
	}
	return p, err
}

// makePrivate makes a key. Several generators may share the folder: the first
// one's key stays, since its minions may be known by it already.
func makePrivate(path string) error {
	key, err := crypt.GeneratePrivate(2048)
	if err != nil {
		return err
	}
	own := path + "." + minion.Nonce()
	defer os.Remove(own)
	if err := crypt.SavePrivate(own, key, ""); err != nil {
		return err
	}
	if err := os.Link(own, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
