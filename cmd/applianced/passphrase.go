package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
	"golang.org/x/sys/unix"
)

// maxSecretFile bounds files with passphrases, keys and recipients, in bytes.
const maxSecretFile = 64 << 10

func backupRecipients(ctx context.Context, keys []string, file, phraseFile string) ([]age.Recipient, error) {
	if len(keys) == 0 && file == "" {
		p, err := passphrase(ctx, phraseFile, true)
		if err != nil {
			return nil, err
		}

		r, err := age.NewScryptRecipient(p)
		if err != nil {
			return nil, fmt.Errorf("passphrase: %w", err)
		}

		return []age.Recipient{r}, nil
	}

	if phraseFile != "" {
		return nil, errors.New("a passphrase and recipients cannot be combined")
	}

	text := strings.Join(keys, "\n")
	if file != "" {
		b, err := readSmall(file)
		if err != nil {
			return nil, fmt.Errorf("recipients: %w", err)
		}
		text += "\n" + string(b)
	}

	list, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("recipients: %w", err)
	}

	return list, nil
}

func backupIdentities(ctx context.Context, file, phraseFile string) ([]age.Identity, error) {
	if file != "" {
		b, err := readSmall(file)
		if err != nil {
			return nil, fmt.Errorf("identity: %w", err)
		}

		list, err := age.ParseIdentities(strings.NewReader(string(b)))
		if err != nil {
			return nil, fmt.Errorf("identity %s: it holds no age secret key", file)
		}

		return list, nil
	}

	p, err := passphrase(ctx, phraseFile, false)
	if err != nil {
		return nil, err
	}

	id, err := age.NewScryptIdentity(p)
	if err != nil {
		return nil, fmt.Errorf("passphrase: %w", err)
	}

	return []age.Identity{id}, nil
}

func readSmall(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxSecretFile))
}

// shortestPhrase is the minimum number of characters of a new passphrase.
const shortestPhrase = 12

// passphrase returns the first line of a file, or a passphrase for which it asks on the terminal:
// twice if the passphrase is new.
func passphrase(ctx context.Context, file string, fresh bool) (p string, err error) {
	if file != "" {
		var b []byte
		if b, err = readSmall(file); err != nil {
			return "", fmt.Errorf("passphrase: %w", err)
		}
		p, _, _ = strings.Cut(string(b), "\n")
		p = strings.TrimSuffix(p, "\r")
	} else if p, err = askSecret(ctx, "Passphrase: "); err != nil {
		return "", err
	} else if fresh {
		again, err := askSecret(ctx, "Once more:  ")
		if err != nil {
			return "", err
		}
		if again != p {
			return "", errors.New("the two passphrases differ")
		}
	}

	if fresh && len([]rune(p)) < shortestPhrase {
		return "", fmt.Errorf("the passphrase is too short: at least %d characters", shortestPhrase)
	}

	return p, nil
}

// askSecret asks on the controlling terminal, which does not echo the input, and returns the input.
func askSecret(ctx context.Context, prompt string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", errors.New("there is no terminal to ask for the passphrase; use --passphrase-file, or " +
			"keys: --recipient for a backup, --identity for a restore")
	}
	defer tty.Close()

	old, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		return "", fmt.Errorf("ask for the passphrase: %w", err)
	}

	quiet := *old
	quiet.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, &quiet); err != nil {
		return "", fmt.Errorf("ask for the passphrase: %w", err)
	}
	defer func() {
		_ = unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, old)
		fmt.Fprintln(tty)
	}()

	fmt.Fprint(tty, prompt)
	type answer struct {
		line string
		err  error
	}

	got := make(chan answer, 1)
	go func() { // this goroutine ends after a line of input, or with the program
		line := make([]byte, 4096) // the longest line that a terminal passes on
		n, err := tty.Read(line)
		got <- answer{strings.TrimRight(string(line[:max(n, 0)]), "\r\n"), err}
	}()

	select {
	case <-ctx.Done():
		return "", errors.New("no passphrase was given")
	case a := <-got:
		if a.err != nil {
			return "", fmt.Errorf("ask for the passphrase: %w", a.err)
		}
		return a.line, nil
	}
}
