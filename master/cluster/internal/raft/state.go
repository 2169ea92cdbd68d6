package raft

import (
	"errors"
	"fmt"

	"saltern/master/cluster/wire"
	"saltern/master/value"
)

var errState = errors.New("bad state of the consensus")

// Pack returns the state in the form that is stored on disk.
func (s State) Pack() ([]byte, error) {
	log := make([]any, len(s.Log))
	for i, e := range s.Log {
		log[i] = []any{e.Term, e.Type, e.Cmd}
	}
	b, err := wire.Pack(value.NewMap("term", s.Term, "voted", s.Voted, "log", log))
	if err != nil {
		return nil, fmt.Errorf("pack the state of the consensus: %w", err)
	}
	return b, nil
}

// ParseState parses the result of Pack.
func ParseState(b []byte) (State, error) {
	v, err := wire.Unpack(b, 64, 1<<20)
	if err != nil {
		return State{}, fmt.Errorf("%w: %w", errState, err)
	}

	m, ok := v.(*value.Map)
	if !ok {
		return State{}, errState
	}

	s := State{Term: integer(m, "term", -1), Voted: m.Str("voted")}
	if s.Term < 0 || s.Voted != "" && wire.ValidPeer(s.Voted) != nil || len(m.List("log")) > maxEntries {
		return State{}, errState
	}

	for _, v := range m.List("log") {
		l, ok := v.([]any)
		if !ok || len(l) != 3 {
			return State{}, errState
		}

		term, ok1 := l[0].(int64)
		kind, ok2 := l[1].(int64)
		if !ok1 || !ok2 || term > s.Term {
			return State{}, errState
		}

		s.Log = append(s.Log, Entry{Term: term, Type: kind, Cmd: l[2]})
	}

	return s, nil
}
