package diff

// Summary holds the numbers of a report. None of its fields has a name or value of a ref.
type Summary struct {
	Minions  int // that were compared
	Unknown  int // that were not, because this master has no grains of them
	Differ   int
	Groups   int
	Broken   int  // minions that get errors which they had not before
	Untold   int  // files of which cannot be told what they give, and whose text differs
	SameText int  // such files whose text is the same
	More     bool // Untold or SameText are higher
	LeftOut  int  // entries of ext_pillar that are not run
}

// Summary returns the numbers of the report.
func (r *Report) Summary() Summary {
	s := Summary{
		Minions: r.Compared,
		Unknown: r.Unknowns,
		Differ:  r.Differing,
		Groups:  len(r.Groups),
		Broken:  r.broken,
		More:    r.Unlisted > 0,
		LeftOut: len(r.Notes),
	}
	for _, f := range r.Refused {
		if f.same {
			s.SameText++
		} else {
			s.Untold++
		}
	}
	if r.hidden {
		s.Untold = max(s.Untold, 1)
	}
	return s
}
