package git

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"saltern/internal/durable"
)

// maxKey bounds the size of a private key's file, in bytes.
const maxKey = 1 << 20

// startAgent starts an SSH agent with the private key of a remote, if that key has a passphrase.
// (The only other way to pass a passphrase to ssh is a program that prints the passphrase.) socket
// is "" if the remote has no such key. stop ends the agent and waits for its end.
func startAgent(ctx context.Context, r *Remote) (socket string, stop func(), err error) {
	if r.Passphrase == "" || r.PrivKey == "" || r.transport != "ssh" {
		return "", func() {}, nil
	}

	pem, err := durable.Read(r.PrivKey, maxKey)
	if err != nil {
		return "", nil, &Fault{Kind: Authentication, Text: "the private key cannot be read: " + briefOf(err.Error())}
	}

	key, err := ssh.ParseRawPrivateKeyWithPassphrase(pem, []byte(r.Passphrase))
	if err != nil {
		return "", nil, &Fault{
			Kind: Authentication,
			Text: fmt.Sprintf("the private key %s cannot be opened with its passphrase", briefOf(r.PrivKey)),
		}
	}

	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		return "", nil, &Fault{Kind: Authentication, Text: "the private key cannot be used: " + briefOf(err.Error())}
	}

	dir, err := os.MkdirTemp("", "saltern-git-") // MkdirTemp creates the directory with mode 0700
	if err != nil {
		return "", nil, fmt.Errorf("serve a private key: %w", err)
	}

	socket = filepath.Join(dir, "agent")
	ln, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("serve a private key: %w", err), os.RemoveAll(dir))
	}

	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			mu.Lock()
			open[c] = true
			mu.Unlock()

			wg.Go(func() {
				_ = agent.ServeAgent(ring, c) // ends when ssh closes the connection
				_ = c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})

	return socket, func() {
		_ = ln.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()

		wg.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}
