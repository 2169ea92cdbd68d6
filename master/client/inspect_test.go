package client

import "saltern/master/value"

// Map is the return as LocalClient yields it, without its id.
func (r Return) Map() *value.Map {
	m := value.NewMap()
	if r.HasRet {
		m.Set("ret", r.Ret)
	}

	if r.Out != "" {
		m.Set("out", r.Out)
	}

	if r.HasRetcode {
		m.Set("retcode", r.Retcode)
	}

	if r.JID != "" {
		m.Set("jid", r.JID)
	}

	return m
}

// String is for tests and logs.
func (r Return) String() string { return r.ID + "=" + value.Repr(r.Map()) }
