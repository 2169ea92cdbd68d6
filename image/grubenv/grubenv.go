// Package grubenv reads and writes GRUB's environment block: 1024 bytes in which the boot loader
// and the system exchange which version to boot. The format is that of grub-editenv (GRUB 2.06,
// util/grub-editenv.c and grub-core/lib/envblk.c): a signature line, NAME=VALUE lines, then '#' up
// to the end. GRUB writes the block in place, so its size never changes.
package grubenv

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// size is the size of a block in bytes.
const size = 1024

const signature = "# GRUB Environment Block\n"

// errFull means that the variables do not fit.
var errFull = errors.New("grub environment: the variables do not fit into 1024 bytes")

// Env are the variables of a block.
type Env map[string]string

// parseBlock returns the variables in a block. A backslash escapes the character that follows it.
func parseBlock(b []byte) (Env, error) {
	if len(b) != size || !bytes.HasPrefix(b, []byte(signature)) {
		return nil, errors.New("grub environment: not an environment block of 1024 bytes")
	}

	env := Env{}
	rest := b[len(signature):]
	for len(rest) > 0 && rest[0] != '#' {
		var line []byte
		i := 0
		for ; i < len(rest) && rest[i] != '\n'; i++ {
			if rest[i] == '\\' && i+1 < len(rest) {
				i++
			}
			line = append(line, rest[i])
		}

		if i == len(rest) {
			return nil, errors.New("grub environment: a line does not end")
		}

		rest = rest[i+1:]
		name, value, ok := strings.Cut(string(line), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("grub environment: %q is no variable", line)
		}

		env[name] = value
	}

	return env, nil
}

// Bytes returns the block.
func (e Env) Bytes() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(signature)
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if name == "" || strings.ContainsAny(name, "=\\\n#") {
			return nil, fmt.Errorf("grub environment: %q is no name", name)
		}

		b.WriteString(name + "=")
		for _, c := range []byte(e[name]) {
			if c == '\\' || c == '\n' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}

		b.WriteByte('\n')
	}

	if b.Len() > size {
		return nil, errFull
	}

	b.Write(bytes.Repeat([]byte{'#'}, size-b.Len()))
	return b.Bytes(), nil
}

// Load returns the variables in a file.
func Load(path string) (Env, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("grub environment: %w", err)
	}
	defer f.Close()
	b := make([]byte, size+1)
	n, err := f.ReadAt(b, 0)
	if n != size {
		return nil, errors.Join(fmt.Errorf("grub environment: %s has not 1024 bytes", path), err)
	}
	return parseBlock(b[:n])
}

// Save replaces the file's content in place, because GRUB needs the file at the same sectors. A
// block is smaller than the unit in which a disk writes, so a crash does not leave half a block.
func (e Env) Save(path string) error {
	b, err := e.Bytes()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("grub environment: %w", err)
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("grub environment: write %s: %w", filepath.Base(path), err)
	}
	return nil
}
