"""Answers → scores: what a task answered, counted sample by sample."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.metrics.agreement import Differences as Differences
    from qbench.metrics.agreement import count_differences as count_differences
    from qbench.metrics.agreement import unequal as unequal
    from qbench.metrics.answer_files import UNNAMED_OUTPUT as UNNAMED_OUTPUT
    from qbench.metrics.answer_files import AnswerFile as AnswerFile
    from qbench.metrics.answer_files import AnswerRecord as AnswerRecord
    from qbench.metrics.answer_files import DataMark as DataMark
    from qbench.metrics.answer_files import Header as Header
    from qbench.metrics.answer_files import Provenance as Provenance
    from qbench.metrics.answer_files import TokenRecord as TokenRecord
    from qbench.metrics.answer_files import answer_lines as answer_lines
    from qbench.metrics.answer_files import decoded_line as decoded_line
    from qbench.metrics.answer_files import is_answer_file as is_answer_file
    from qbench.metrics.answer_files import json_lines as json_lines
    from qbench.metrics.answer_files import listed_ids as listed_ids
    from qbench.metrics.answer_files import open_answers as open_answers
    from qbench.metrics.answers import MILLION as MILLION
    from qbench.metrics.answers import PADDING as PADDING
    from qbench.metrics.answers import AnswerChange as AnswerChange
    from qbench.metrics.answers import AnswerKind as AnswerKind
    from qbench.metrics.answers import Answers as Answers
    from qbench.metrics.answers import FirstOutputs as FirstOutputs
    from qbench.metrics.answers import IntegerAnswers as IntegerAnswers
    from qbench.metrics.answers import Likelihoods as Likelihoods
    from qbench.metrics.answers import OutputKind as OutputKind
    from qbench.metrics.answers import Outputs as Outputs
    from qbench.metrics.answers import StoredAnswers as StoredAnswers
    from qbench.metrics.answers import count_changes as count_changes
    from qbench.metrics.answers import held_outputs as held_outputs
    from qbench.metrics.answers import kept_arrays as kept_arrays
    from qbench.metrics.answers import kept_digest as kept_digest
    from qbench.metrics.answers import packed_answers as packed_answers
    from qbench.metrics.answers import points_of as points_of
    from qbench.metrics.answers import restored_answers as restored_answers
    from qbench.metrics.answers import rows_of as rows_of
    from qbench.metrics.answers import text_of as text_of
    from qbench.metrics.answers import unpacked_answers as unpacked_answers
    from qbench.metrics.box_matching import Boxes as Boxes
    from qbench.metrics.boxes import BoxAnswers as BoxAnswers
    from qbench.metrics.boxes import Ratio as Ratio
    from qbench.metrics.boxes import average_precision as average_precision
    from qbench.metrics.boxes import box_labels as box_labels
    from qbench.metrics.boxes import ratio_of_boxes as ratio_of_boxes
    from qbench.metrics.clusters import change_interval as change_interval
    from qbench.metrics.clusters import source_interval as source_interval
    from qbench.metrics.clusters import source_p as source_p
    from qbench.metrics.distances import MOST_DB as MOST_DB
    from qbench.metrics.foreign_logs import ForeignLog as ForeignLog
    from qbench.metrics.foreign_logs import LogChoices as LogChoices
    from qbench.metrics.foreign_logs import join_foreign_logs as join_foreign_logs
    from qbench.metrics.foreign_logs import open_foreign_log as open_foreign_log
    from qbench.metrics.masks import IGNORED as IGNORED
    from qbench.metrics.masks import MaskAnswers as MaskAnswers
    from qbench.metrics.metric import ArrayLabels as ArrayLabels
    from qbench.metrics.metric import Counts as Counts
    from qbench.metrics.metric import Labels as Labels
    from qbench.metrics.metric import Metric as Metric
    from qbench.metrics.metric import score as score
    from qbench.metrics.metric import slice_scores as slice_scores
    from qbench.metrics.paired import Interval as Interval
    from qbench.metrics.paired import Method as Method
    from qbench.metrics.paired import paired_interval as paired_interval
    from qbench.metrics.paired import tango_statistic as tango_statistic
    from qbench.metrics.registry import catalogue as catalogue
    from qbench.metrics.registry import get_metric as get_metric
    from qbench.metrics.regression import ValueAnswers as ValueAnswers
    from qbench.metrics.scores import BILLION as BILLION
    from qbench.metrics.scores import Against as Against
    from qbench.metrics.scores import Clusters as Clusters
    from qbench.metrics.scores import Counted as Counted
    from qbench.metrics.scores import Direction as Direction
    from qbench.metrics.scores import Gathering as Gathering
    from qbench.metrics.scores import Score as Score
    from qbench.metrics.token_streams import TOKEN_KL as TOKEN_KL
    from qbench.metrics.token_streams import TOKEN_KL_MOST as TOKEN_KL_MOST
    from qbench.metrics.token_streams import TOKEN_PERPLEXITY as TOKEN_PERPLEXITY
    from qbench.metrics.token_streams import TOKEN_TOP1 as TOKEN_TOP1
    from qbench.metrics.token_streams import TokenStreams as TokenStreams
    from qbench.metrics.token_streams import streams_of as streams_of
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
