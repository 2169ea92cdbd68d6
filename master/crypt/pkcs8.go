package crypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"hash"
)

// The structures of encrypted PKCS#8 with PBES2 and PBKDF2: RFC 8018, appendix A; RFC 5958.
type encryptedPrivateKeyInfo struct {
	Algorithm pkix.AlgorithmIdentifier
	Data      []byte
}

type pbes2Params struct {
	KDF    pkix.AlgorithmIdentifier
	Cipher pkix.AlgorithmIdentifier
}

type pbkdf2Params struct {
	Salt       []byte
	Iterations int
	KeyLen     int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

// maxIterations bounds the work that a key file can demand to some seconds.
const maxIterations = 2_000_000

const (
	oidPBES2      = "1.2.840.113549.1.5.13"
	oidPBKDF2     = "1.2.840.113549.1.5.12"
	oidHMACSHA1   = "1.2.840.113549.2.7"
	oidHMACSHA224 = "1.2.840.113549.2.8"
	oidHMACSHA256 = "1.2.840.113549.2.9"
	oidHMACSHA384 = "1.2.840.113549.2.10"
	oidHMACSHA512 = "1.2.840.113549.2.11"
	oidDES3CBC    = "1.2.840.113549.3.7"
	oidAES128CBC  = "2.16.840.1.101.3.4.1.2"
	oidAES192CBC  = "2.16.840.1.101.3.4.1.22"
	oidAES256CBC  = "2.16.840.1.101.3.4.1.42"
)

// decryptPKCS8 returns the PrivateKeyInfo in an EncryptedPrivateKeyInfo.
func decryptPKCS8(der, passphrase []byte) ([]byte, error) {
	var info encryptedPrivateKeyInfo
	if rest, err := asn1.Unmarshal(der, &info); err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("%w: malformed encrypted PKCS#8", ErrPrivateKey)
	}

	if oid := info.Algorithm.Algorithm.String(); oid != oidPBES2 {
		return nil, fmt.Errorf("%w: key encryption %s is not PBES2", ErrPrivateKey, oid)
	}

	var params pbes2Params
	if _, err := asn1.Unmarshal(info.Algorithm.Parameters.FullBytes, &params); err != nil {
		return nil, fmt.Errorf("%w: malformed PBES2 parameters", ErrPrivateKey)
	}

	newBlock, keyLen, err := pbes2Cipher(params.Cipher.Algorithm.String())
	if err != nil {
		return nil, err
	}

	key, err := pbes2Key(params.KDF, passphrase, keyLen)
	if err != nil {
		return nil, err
	}

	block, err := newBlock(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrivateKey, err)
	}

	var iv []byte
	if _, err := asn1.Unmarshal(params.Cipher.Parameters.FullBytes, &iv); err != nil || len(iv) != block.BlockSize() {
		return nil, fmt.Errorf("%w: malformed initialisation vector", ErrPrivateKey)
	}

	n := len(info.Data)
	if n == 0 || n%block.BlockSize() != 0 {
		return nil, fmt.Errorf("%w: encrypted part is no whole number of blocks", ErrPrivateKey)
	}

	plain := make([]byte, n)
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, info.Data)
	pad := int(plain[n-1])
	if pad < 1 || pad > block.BlockSize() {
		return nil, ErrPassphrase
	}

	for _, c := range plain[n-pad:] {
		if int(c) != pad {
			return nil, ErrPassphrase
		}
	}

	if plain = plain[:n-pad]; len(plain) == 0 || plain[0] != 0x30 {
		return nil, ErrPassphrase
	}

	return plain, nil
}

func pbes2Cipher(oid string) (func([]byte) (cipher.Block, error), int, error) {
	switch oid {
	case oidAES128CBC:
		return aes.NewCipher, 16, nil
	case oidAES192CBC:
		return aes.NewCipher, 24, nil
	case oidAES256CBC:
		return aes.NewCipher, 32, nil
	case oidDES3CBC:
		return des.NewTripleDESCipher, 24, nil
	}
	return nil, 0, fmt.Errorf("%w: unknown cipher %s", ErrPrivateKey, oid)
}

func pbes2Key(kdf pkix.AlgorithmIdentifier, passphrase []byte, keyLen int) ([]byte, error) {
	if oid := kdf.Algorithm.String(); oid != oidPBKDF2 {
		return nil, fmt.Errorf("%w: key derivation %s is not PBKDF2", ErrPrivateKey, oid)
	}

	var p pbkdf2Params
	if _, err := asn1.Unmarshal(kdf.Parameters.FullBytes, &p); err != nil {
		return nil, fmt.Errorf("%w: malformed PBKDF2 parameters", ErrPrivateKey)
	}
	if p.Iterations < 1 || p.Iterations > maxIterations || len(p.Salt) == 0 || (p.KeyLen != 0 && p.KeyLen != keyLen) {
		return nil, fmt.Errorf("%w: PBKDF2 parameters out of range", ErrPrivateKey)
	}

	newHash := sha1.New // RFC 8018 defines this default
	if p.PRF.Algorithm != nil {
		var err error
		if newHash, err = pbes2PRF(p.PRF.Algorithm.String()); err != nil {
			return nil, err
		}
	}

	key, err := pbkdf2.Key(newHash, string(passphrase), p.Salt, p.Iterations, keyLen)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrivateKey, err)
	}

	return key, nil
}

func pbes2PRF(oid string) (func() hash.Hash, error) {
	switch oid {
	case oidHMACSHA1:
		return sha1.New, nil
	case oidHMACSHA224:
		return sha256.New224, nil
	case oidHMACSHA256:
		return sha256.New, nil
	case oidHMACSHA384:
		return sha512.New384, nil
	case oidHMACSHA512:
		return sha512.New, nil
	}
	return nil, fmt.Errorf("%w: unknown pseudo-random function %s", ErrPrivateKey, oid)
}
