package keyadmin

import "saltern/master/value"

// FingerMaster returns the fingerprints of the master's own keys.
func (r *Ring) FingerMaster(hashType string) (*value.Map, error) {
	all, err := r.Finger("*", hashType)
	if err != nil {
		return nil, err
	}
	return value.NewMap("local", all.Value("local")), nil
}
