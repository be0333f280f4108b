package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"time"
)

// file is an entry of an archive; a name that ends with / is a directory.
type file struct {
	name string
	mode int64
	user int // owner, 0 for root
	text []byte
}

// archive returns a tar archive of the files and of the directories above them. The same files
// and time give the same bytes.
func archive(files []file, when time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{"./": true, "/": true}
	var add func(f file) error
	add = func(f file) error {
		if made[f.name] {
			return nil
		}
		made[f.name] = true
		if err := add(file{name: path.Dir(path.Clean(f.name)) + "/", mode: 0o755}); err != nil {
			return err
		}
		h := &tar.Header{
			Name: f.name, Mode: f.mode, Uid: f.user, Gid: f.user, Size: int64(len(f.text)), ModTime: when,
			Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(f.text)
		return err
	}
	for _, f := range files {
		if err := add(f); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// packed returns the text compressed by gzip. The result has no name and no time.
func packed(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// writeArchive writes a compressed archive into the folder of the result.
func (r *release) writeArchive(name string, files []file) error {
	text, err := archive(files, r.when)
	if err == nil {
		text, err = packed(text)
	}
	if err != nil {
		return err
	}
	return r.write(name, text)
}
