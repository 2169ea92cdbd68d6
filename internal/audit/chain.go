package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
)

// The records of a book form a chain: each has a number, and a hash over its own line and the hash
// of the previous record. A file begins with a record of the action [fileAction]. That record
// states the position in the chain, and the number of the oldest record that is kept. Files that
// exceed the bounds are removed only after this record has been written. [Verify] finds missing and
// changed records.
//
// An attacker who can write to the files can compute the whole chain again. The heads that other
// nodes have recorded (heads.go) reveal that.

// fileAction is the action of the record that begins a file.
const fileAction = "audit.file"

const (
	// hashLen is the length of a value of the chain: 128 bits in hexadecimal.
	hashLen = 32
	// linkRoom is how many bytes a link adds to a line at most.
	linkRoom = len(`,"seq":18446744073709551615,"chain":""`) + hashLen
	// maxSeq is the largest record number that a reader accepts.
	maxSeq = 1 << 53
)

// link is the position in a chain after a record. The zero link is the position before the first
// record.
type link struct {
	seq   uint64
	chain string
}

// hash returns the hash that enters the hash of the next record.
func (l link) hash() string {
	if l.seq == 0 {
		return strings.Repeat("0", hashLen)
	}
	return l.chain
}

// linkRecord returns the line of the next record with its link, and the link.
func (l link) linkRecord(line []byte) ([]byte, link) {
	body := bytes.TrimSuffix(line, []byte("}\n"))
	out := make([]byte, 0, len(body)+linkRoom+2)
	out = append(out, body...)
	out = append(out, `,"seq":`...)
	out = strconv.AppendUint(out, l.seq+1, 10)

	next := link{l.seq + 1, chainHash(l.hash(), out)}
	out = append(out, `,"chain":"`...)
	out = append(out, next.chain...)
	return append(out, "\"}\n"...), next
}

// chainHash returns the hash of a record. previous is the hash of the previous record. line is the
// record's line up to its chain field.
func chainHash(previous string, line []byte) string {
	h := sha256.New()
	h.Write([]byte(previous))
	h.Write(line)
	return hex.EncodeToString(h.Sum(nil)[:hashLen/2])
}

// readLink splits a line into its link and the hashed part. ok is false for a line without a link.
// The text of a record cannot look like a link, because quotation marks in the text are escaped.
func readLink(line []byte) (hashed []byte, l link, ok bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	hashed, rest, ok := cutLast(line, `,"chain":"`)
	if !ok || len(rest) != hashLen+2 || string(rest[hashLen:]) != `"}` {
		return nil, link{}, false
	}

	_, digits, ok := cutLast(hashed, `,"seq":`)
	if !ok {
		return nil, link{}, false
	}

	seq, err := strconv.ParseUint(string(digits), 10, 64)
	l = link{seq, cleanHash(string(rest[:hashLen]))}
	if err != nil || seq == 0 || seq > maxSeq || l.chain == "" {
		return nil, link{}, false
	}

	return hashed, l, true
}

func cutLast(b []byte, sep string) (before, after []byte, ok bool) {
	i := bytes.LastIndex(b, []byte(sep))
	if i < 0 {
		return nil, nil, false
	}
	return b[:i], b[i+len(sep):], true
}

// lastLink returns the link of the last complete record of a file. ok is false if that record has
// none.
func lastLink(f io.ReaderAt, size int64) (l link, ok bool, err error) {
	for tail := int64(4 << 10); ; tail *= 16 {
		tail = min(tail, size, 2*largestPart)
		b := make([]byte, tail)
		n, err := f.ReadAt(b, size-tail)
		if err != nil && !errors.Is(err, io.EOF) {
			return link{}, false, err
		}

		b = b[:n]

		// The first line in b may be incomplete, so it counts only if b starts at the start of the
		// file. The last line may lack its newline, which the next write adds.
		for len(b) > 0 {
			b = bytes.TrimSuffix(b, []byte("\n"))
			begin := bytes.LastIndexByte(b, '\n') + 1
			if begin > 0 || tail == size {
				if _, l, ok := readLink(b[begin:]); ok {
					return l, true, nil
				}
			}

			b = b[:begin]
		}

		if tail == size || tail == 2*largestPart {
			return link{}, false, nil
		}
	}
}

// span is the range of records in a file. The zero span means that no record has a link.
type span struct {
	first, last uint64
	end         link   // link of the last record
	kept        uint64 // number of the oldest kept record, as stated by the record that begins the file
}

// spanOf returns the span of a file, of which it reads only the beginning and the end.
func spanOf(path string) (s span, err error) {
	f, st, err := durable.Open(path, durable.Refuse)
	if err != nil {
		return span{}, err
	}
	defer f.Close()

	end, ok, err := lastLink(f, st.Size())
	if err != nil || !ok {
		return span{}, err
	}

	head := make([]byte, maxLine)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return span{}, err
	}

	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	s = span{last: end.seq, end: end}
	if _, begin, ok := readLink(line); ok {
		s.first = begin.seq
		s.kept = decode(line).First
	}

	return s, nil
}

// fileHead is the record that begins a file, and the older files to remove with it.
type fileHead struct {
	before link
	record Record
	remove []string
}

// newHead returns the head of the current file, which is empty. The caller holds the file's lock.
func (b book) newHead(now time.Time) (fileHead, error) {
	files, err := b.fileNames()
	if err != nil {
		return fileHead{}, err
	}

	files = files[:len(files)-1]
	h := fileHead{remove: b.tooMuch(files, now)}

	var kept uint64
	for i := len(files) - 1; i >= 0 && kept == 0; i-- {
		s, err := spanOf(files[i])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fileHead{}, err
		}

		if h.before.seq == 0 {
			h.before = s.end
		}

		kept = s.kept
	}

	// The removal of a file moves the oldest kept number only if the file was the next in order. So
	// records that another program has removed are reported as missing.
	kept = max(kept, 1)
	for _, path := range h.remove {
		s, err := spanOf(path)
		if err == nil && s.first <= kept && s.last >= kept {
			kept = s.last + 1
		}
	}

	h.record = Record{
		Time:    now,
		Node:    b.node,
		Program: b.program,
		Actor:   Actor{User: "audit", Proof: Setting, From: Local},
		Action:  fileAction,
		Object:  b.name,
		Result:  OK,
		First:   kept,
		Prev:    h.before.hash(),
	}

	return h, nil
}

// startFile writes the head of the current file, which is empty, then removes the files that exceed
// the bounds. It returns the size of the current file and the position in the chain.
func (b book) startFile(f *os.File, now time.Time) (size int64, at link, err error) {
	h, err := b.newHead(now)
	if err != nil {
		return 0, link{}, err
	}

	line, err := encode(h.record)
	if err != nil {
		return 0, link{}, err
	}

	text, at := h.before.linkRecord(line)

	err = appendText(f, 0, text)
	if errors.Is(err, unix.ENOSPC) && len(h.remove) > 0 { // remove the older files first, to free space
		if err = removeAll(h.remove); err == nil {
			err = appendText(f, 0, text)
		}
	}

	if err == nil && len(h.remove) > 0 {
		// sync before the removal, so that even after a power cut the head names the removed
		// records
		err = unix.Fdatasync(int(f.Fd()))
	}

	if err == nil {
		err = removeAll(h.remove)
	}

	return int64(len(text)), at, err
}

func removeAll(files []string) error {
	var faults []error
	for _, path := range files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}
